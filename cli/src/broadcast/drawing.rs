//! The network and the trees of a plan as one SVG.
//!
//! Left the network, growing from the source; on each link a line in the colour of each tree that uses it, and in a small
//! network its direction. Right a row for each host: its name, a frame as long as its bound, and in it the rate of each tree
//! that reaches it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use gridcast_core::broadcast::{
    plan::{Arrival, Plan},
    topology::{Host, Topology},
};

use super::{counted, curve::Curve, layout::Layout, percent, shortened, svg, word};

/// Pixels from one column of the network to the next, and from one row to the next in small and in large networks.
const COLUMN: f64 = 130.0;
const ROWS: (f64, f64) = (26.0, 18.0);
const MARGIN: f64 = 24.0;
/// Longest bar, and the place for figures behind it.
const BAR: f64 = 220.0;
const FIGURES: f64 = 220.0;
/// Width of a letter of a name, and most letters of one.
const LETTER: f64 = 6.7;
const NAME: usize = 40;
/// Width of a letter of the heading.
const HEADING: f64 = 9.2;
/// Most pixels that the lines of one link take together.
const BUNDLE: f64 = 14.0;
/// Most entries of the legend, pixels from one to the next, and from one of its rows to the next.
const LEGEND: usize = 64;
const ENTRY: (f64, f64) = (230.0, 18.0);
/// Networks with more links than this have no capacities written on them, and no arrows.
const LABELLED: usize = 40;

/// Where things are.
struct Canvas<'a> {
    network: &'a Topology,
    plan: &'a Plan,
    layout: Layout,
    names: BTreeMap<&'a str, usize>,
    width: f64,
    /// Where the first row is, and how far it is to the next.
    top: f64,
    row: f64,
    /// Where the names of the rows begin, and where the bars do.
    text: f64,
    bars: f64,
}

/// The trees that use a link, and whether from its first end to its second, and back; ends by number.
type Used = BTreeMap<(usize, usize), BTreeMap<usize, [bool; 2]>>;

pub(super) fn render(network: &Topology, plan: &Plan) -> String {
    let canvas = Canvas::new(network, plan);
    let (width, height) = (canvas.width, canvas.top + canvas.layout.size.1 as f64 * canvas.row + MARGIN);
    let mut out = svg((width, height), 11);
    canvas.heading(&mut out);
    canvas.signs(&mut out);
    canvas.links(&mut out);
    canvas.vertices(&mut out);
    canvas.rows(&mut out);
    out.push_str("</svg>\n");
    out
}

impl<'a> Canvas<'a> {
    fn new(network: &'a Topology, plan: &'a Plan) -> Self {
        let vertices = network.vertex_names().into_iter().enumerate();
        let names = vertices.map(|(vertex, name)| (name, vertex)).collect();
        let layout = Layout::new(network, &plan.source);
        let longest = network.hosts.iter().map(|host| host.name().len()).max().unwrap_or(0).min(NAME);
        let text = MARGIN + layout.size.0 as f64 * COLUMN - COLUMN / 2.0;
        let bars = text + (longest as f64 * LETTER).max(28.0) + 12.0;
        let heading = title(plan).chars().count() as f64 * HEADING + 2.0 * MARGIN;
        let width = (bars + BAR + FIGURES).max(heading);
        let row = if network.links.len() <= LABELLED { ROWS.0 } else { ROWS.1 };
        let mut canvas = Self { network, plan, layout, names, width, top: 0.0, row, text, bars };
        let listed = plan.trees.len().min(LEGEND) + usize::from(plan.trees.len() > LEGEND);
        canvas.top = 48.0 + listed.div_ceil(canvas.entries()) as f64 * ENTRY.1 + 52.0;
        canvas
    }

    /// Entries in a row of the legend.
    fn entries(&self) -> usize {
        ((self.width - MARGIN) / ENTRY.0).floor().max(1.0) as usize
    }
}

impl Canvas<'_> {
    fn at(&self, vertex: usize) -> (f64, f64) {
        let column = self.layout.columns[vertex] as f64;
        (MARGIN + column * COLUMN, self.top + self.layout.rows[vertex] * self.row)
    }

    fn heading(&self, out: &mut String) {
        let plan = self.plan;
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"26\" font-size=\"15\" font-weight=\"bold\">{}</text>",
            title(plan)
        );
        let place = |index: usize| {
            let (column, row) = (index % self.entries(), index / self.entries());
            (MARGIN + column as f64 * ENTRY.0, 50.0 + row as f64 * ENTRY.1)
        };
        for (index, tree) in plan.trees.iter().take(LEGEND).enumerate() {
            let (x, y) = place(index);
            let (colour, hosts) = (colour(index, plan.trees.len()), counted(tree.hops.len(), "host"));
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"10\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{y:.1}\">tree {}: {:.1} Mbit/s, {hosts}</text>",
                y - 9.0,
                x + 19.0,
                index + 1,
                tree.rate_mbps,
            );
        }
        if let Some(more) = plan.trees.len().checked_sub(LEGEND).filter(|&more| more > 0) {
            let (x, y) = place(LEGEND);
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">and {more} more</text>");
        }
    }

    /// What circles, squares, figures and bars are.
    fn signs(&self, out: &mut String) {
        let y = self.top - 32.0;
        let figures =
            if self.network.links.len() <= LABELLED { "figures on links: capacity in Mbit/s" } else { "" };
        let end = self.text - 8.0;
        let small = "font-size=\"10\" fill=\"#555\"";
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"#222\" stroke=\"#222\"/><text x=\"{:.1}\" y=\"{y:.1}\" {small}>source</text>\
             <circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" fill=\"white\" stroke=\"#222\"/><text x=\"{:.1}\" y=\"{y:.1}\" {small}>host</text>\
             <rect x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"#ddd\" stroke=\"#222\"/><text x=\"{:.1}\" y=\"{y:.1}\" {small}>switch</text>",
            MARGIN,
            y - 4.0,
            MARGIN + 9.0,
            MARGIN + 60.0,
            y - 4.0,
            MARGIN + 69.0,
            MARGIN + 104.0,
            y - 9.0,
            MARGIN + 118.0,
        );
        let below = y + 13.0;
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{below:.1}\" {small}>{figures}</text>", MARGIN - 5.0);
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{below:.1}\" {small}>host</text><text x=\"{:.1}\" y=\"{below:.1}\" {small}>rate by tree; the frame is the bound</text>\
             <text x=\"{:.1}\" y=\"{below:.1}\" {small}>Mbit/s</text>",
            end + 8.0,
            self.bars,
            self.bars + BAR + 8.0
        );
    }

    fn used(&self) -> Used {
        let mut used = Used::new();
        for (index, tree) in self.plan.trees.iter().enumerate() {
            for ends in tree.hops.iter().flat_map(|hop| hop.path.windows(2)) {
                let ends = (self.names.get(ends[0].as_str()), self.names.get(ends[1].as_str()));
                if let (Some(&from), Some(&to)) = ends {
                    let trees = used.entry((from.min(to), from.max(to))).or_default();
                    trees.entry(index).or_default()[usize::from(from > to)] = true;
                }
            }
        }
        used
    }

    /// Links, and on each the trees that use it, the widest tree first.
    fn links(&self, out: &mut String) {
        let mut used = self.used();
        let mut labels = String::new();
        let mut drawn = BTreeSet::new();
        for link in &self.network.links {
            let ends = (self.names.get(link.a.as_str()), self.names.get(link.b.as_str()));
            let (Some(&a), Some(&b)) = ends else { continue };
            let ends = (a.min(b), a.max(b));
            let curve = |shift: f64| self.curve(ends.0, ends.1, shift);
            let _ = writeln!(out, "<path d=\"{}\" fill=\"none\" stroke=\"#ccc\"/>", curve(0.0).path());
            let trees = used.remove(&ends).unwrap_or_default();
            let step = (BUNDLE / trees.len().max(1) as f64).min(2.5);
            for (place, (&tree, &ways)) in trees.iter().enumerate() {
                let shift = (place as f64 - (trees.len() - 1) as f64 / 2.0) * step;
                let colour = colour(tree, self.plan.trees.len());
                let (curve, width) = (curve(shift), step * 0.8);
                let _ = writeln!(
                    out,
                    "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width:.2}\"/>",
                    curve.path()
                );
                if self.network.links.len() <= LABELLED {
                    curve.arrows(&mut labels, ways, place, &colour);
                }
            }
            // Links that join the same two are one line, with one label.
            if self.network.links.len() <= LABELLED && drawn.insert(ends) {
                self.label(&mut labels, ends);
            }
        }
        out.push_str(&labels);
    }

    /// The capacity, near the end that is farther from the source, where links are apart.
    fn label(&self, out: &mut String, (a, b): (usize, usize)) {
        let (mut there, mut back) = (0.0, 0.0);
        let names = |vertex: usize, name: &str| self.names.get(name) == Some(&vertex);
        for link in &self.network.links {
            let back_mbps = link.back_mbps.unwrap_or(link.mbps);
            if names(a, &link.a) && names(b, &link.b) {
                (there, back) = (there + link.mbps, back + back_mbps);
            } else if names(b, &link.a) && names(a, &link.b) {
                (there, back) = (there + back_mbps, back + link.mbps);
            }
        }
        // What leads away from the source first.
        let columns = &self.layout.columns;
        let (far, near) = if columns[b] < columns[a] { (a, b) } else { (b, a) };
        let (out_mbps, in_mbps) = if far == b { (there, back) } else { (back, there) };
        let same = if (out_mbps - in_mbps).abs() < f64::EPSILON {
            format!("{out_mbps}")
        } else {
            format!("{out_mbps} / {in_mbps} back")
        };
        let bow = columns[far] == columns[near];
        let ((x, y), (_, other)) = (self.at(far), self.at(near));
        let (x, y, anchor) = if bow {
            (x + COLUMN * 0.375 - BUNDLE / 2.0, f64::midpoint(y, other) + 3.0, "end")
        } else {
            // On the side where the curve does not come from.
            (x - 12.0, if other < y { y + BUNDLE / 2.0 + 8.0 } else { y - BUNDLE / 2.0 - 1.0 }, "end")
        };
        let _ = writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"9\" fill=\"#444\" text-anchor=\"{anchor}\" \
             stroke=\"white\" stroke-width=\"3\" paint-order=\"stroke\">{same}</text>"
        );
    }

    /// A curve from one vertex to another; a bow where both are in one column.
    fn curve(&self, a: usize, b: usize, shift: f64) -> Curve {
        let ((ax, ay), (bx, by)) = (self.at(a), self.at(b));
        let (first, second) = if self.layout.columns[a] == self.layout.columns[b] {
            (ax + COLUMN / 2.0, bx + COLUMN / 2.0)
        } else {
            (f64::midpoint(ax, bx), f64::midpoint(ax, bx))
        };
        let (ay, by) = (ay + shift, by + shift);
        Curve([(ax, ay), (first, ay), (second, by), (bx, by)])
    }

    fn vertices(&self, out: &mut String) {
        for (vertex, name) in self.network.vertex_names().into_iter().enumerate() {
            let (x, y) = self.at(vertex);
            if vertex < self.network.hosts.len() {
                let fill = if name == self.plan.source { "#222" } else { "white" };
                let _ = writeln!(
                    out,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{fill}\" stroke=\"#222\"/>"
                );
            } else {
                let _ = writeln!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"#ddd\" stroke=\"#222\"/>\
                     <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"10\" text-anchor=\"middle\" stroke=\"white\" \
                     stroke-width=\"3\" paint-order=\"stroke\">{}</text>",
                    x - 5.0,
                    y - 5.0,
                    y - 11.0,
                    shortened(name, 18)
                );
            }
        }
    }

    fn rows(&self, out: &mut String) {
        let arrivals: BTreeMap<&str, &Arrival> =
            self.plan.destinations.iter().map(|arrival| (arrival.name.as_str(), arrival)).collect();
        let most = self.plan.destinations.iter().map(|arrival| arrival.bound_mbps).fold(0.0, f64::max);
        let scale = if most > 0.0 { BAR / most } else { 0.0 };
        let mut reached: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, tree) in self.plan.trees.iter().enumerate() {
            for hop in &tree.hops {
                reached.entry(hop.to.as_str()).or_default().push(index);
            }
        }
        for (vertex, name) in self.network.hosts.iter().map(Host::name).enumerate() {
            let (x, y) = self.at(vertex);
            let arrival = arrivals.get(name);
            let weight = if name == self.plan.source { "bold" } else { "normal" };
            let colour = if arrival.is_some() || weight == "bold" { "#222" } else { "#999" };
            let shown = shortened(name, NAME);
            let _ = writeln!(
                out,
                "<path d=\"M{:.1} {y:.1}H{:.1}\" stroke=\"#ddd\" stroke-dasharray=\"1 3\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" font-weight=\"{weight}\" fill=\"{colour}\">{shown}</text>",
                x + 7.0,
                self.text - 4.0,
                self.text,
                y + 4.0
            );
            if let Some(arrival) = arrival {
                self.bar(out, y, arrival, reached.get(name).map_or(&[], Vec::as_slice), scale);
            }
        }
    }

    /// The rate of each tree within a frame as long as the bound.
    fn bar(&self, out: &mut String, y: f64, arrival: &Arrival, trees: &[usize], scale: f64) {
        let (top, height) = (y - 6.0, 12.0);
        let mut x = self.bars;
        for &tree in trees {
            let width = self.plan.trees[tree].rate_mbps * scale;
            let colour = colour(tree, self.plan.trees.len());
            let _ = writeln!(
                out,
                "<rect x=\"{x:.2}\" y=\"{top:.1}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{colour}\"/>"
            );
            x += width;
        }
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.2}\" height=\"{height}\" fill=\"none\" stroke=\"#222\" stroke-width=\"0.8\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{:.1} of {:.1}, {:.1} %</text>",
            self.bars,
            arrival.bound_mbps * scale,
            self.bars + BAR + 8.0,
            y + 4.0,
            arrival.rate_mbps,
            arrival.bound_mbps,
            percent(arrival.rate_mbps, arrival.bound_mbps)
        );
    }
}

fn title(plan: &Plan) -> String {
    format!(
        "{} from {}: {:.1} Mbit/s, {:.1} % of the bound of {:.1}",
        word(plan.strategy),
        shortened(&plan.source, NAME),
        plan.aggregate_mbps,
        percent(plan.aggregate_mbps, plan.bound_mbps),
        plan.bound_mbps
    )
}

/// The colour of a tree: from blue over green to red.
pub(super) fn colour(index: usize, count: usize) -> String {
    let part = index as f64 / (count.max(2) - 1) as f64;
    let hue = 230.0 * (1.0 - part);
    // Neighbours differ in lightness too.
    let light = if index.is_multiple_of(2) { 0.42 } else { 0.58 };
    let channel = |offset: f64| {
        let k = (offset + hue / 30.0) % 12.0;
        let chroma = 0.75 * f64::min(light, 1.0 - light);
        let value = light - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0.0), channel(8.0), channel(4.0))
}
