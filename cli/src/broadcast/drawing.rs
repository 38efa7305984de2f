//! The network and the trees of a plan as one SVG.
//!
//! Left the network, growing from the source; on each link a line in the colour of each tree that uses it. Right a row for
//! each host: its name, a frame as long as its bound, and in it the rate of each tree that reaches it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use gridcast_core::broadcast::{
    plan::{Arrival, Plan},
    topology::{Host, Topology},
};

use super::{layout::Layout, percent, word};

/// Pixels from one column of the network to the next, and from one row to the next.
const COLUMN: f64 = 130.0;
const ROW: f64 = 18.0;
const MARGIN: f64 = 24.0;
/// Longest bar, and the place for figures behind it.
const BAR: f64 = 220.0;
const FIGURES: f64 = 190.0;
/// Width of a letter of a name.
const LETTER: f64 = 6.7;
/// Most pixels that the lines of one link take together.
const BUNDLE: f64 = 14.0;
/// Entries in a row of the legend, and most of them.
const LEGEND: (usize, usize) = (4, 64);
/// Networks with more links than this have no capacities written on them.
const LABELLED: usize = 40;

/// Where things are.
struct Canvas<'a> {
    network: &'a Topology,
    plan: &'a Plan,
    layout: Layout,
    names: BTreeMap<&'a str, usize>,
    /// Where the first row is.
    top: f64,
    /// Where the names of the rows begin, and where the bars do.
    text: f64,
    bars: f64,
}

pub(super) fn render(network: &Topology, plan: &Plan) -> String {
    let names: BTreeMap<&str, usize> =
        network.vertex_names().into_iter().enumerate().map(|(vertex, name)| (name, vertex)).collect();
    let layout = Layout::new(network, &plan.source);
    let legend = plan.trees.len().min(LEGEND.1).div_ceil(LEGEND.0) as f64;
    let longest = network.hosts.iter().map(|host| host.name().len()).max().unwrap_or(0).min(40);
    let text = MARGIN + layout.size.0 as f64 * COLUMN - COLUMN / 2.0;
    let bars = text + longest as f64 * LETTER + 12.0;
    let canvas = Canvas { network, plan, layout, names, top: 64.0 + legend * ROW + ROW, text, bars };
    let width = (bars + BAR + FIGURES).max(760.0);
    let height = canvas.top + canvas.layout.size.1 as f64 * ROW + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    canvas.heading(&mut out);
    canvas.links(&mut out);
    canvas.vertices(&mut out);
    canvas.rows(&mut out);
    out.push_str("</svg>\n");
    out
}

impl Canvas<'_> {
    fn at(&self, vertex: usize) -> (f64, f64) {
        let column = self.layout.columns[vertex] as f64;
        (MARGIN + column * COLUMN, self.top + self.layout.rows[vertex] * ROW)
    }

    fn heading(&self, out: &mut String) {
        let plan = self.plan;
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"26\" font-size=\"15\" font-weight=\"bold\">{} from {}: {:.1} Mbit/s, {:.1} % of the bound of {:.1}</text>",
            word(plan.strategy),
            plan.source,
            plan.aggregate_mbps,
            percent(plan.aggregate_mbps, plan.bound_mbps),
            plan.bound_mbps
        );
        for (index, tree) in plan.trees.iter().take(LEGEND.1).enumerate() {
            let (x, y) = (MARGIN + (index % LEGEND.0) as f64 * 180.0, 48.0 + (index / LEGEND.0) as f64 * ROW);
            let (colour, hosts) = (colour(index, plan.trees.len()), tree.hops.len());
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"14\" height=\"10\" fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{y:.1}\">tree {}: {:.1} Mbit/s, {hosts} host{}</text>",
                y - 9.0,
                x + 19.0,
                index + 1,
                tree.rate_mbps,
                if hosts == 1 { "" } else { "s" },
            );
        }
        if let Some(more) = plan.trees.len().checked_sub(LEGEND.1).filter(|&more| more > 0) {
            let y = 48.0 + (LEGEND.1 / LEGEND.0) as f64 * ROW;
            let _ = writeln!(out, "<text x=\"{MARGIN}\" y=\"{y:.1}\">and {more} more</text>");
        }
    }

    /// Links, and on each the trees that use it, the widest tree first.
    fn links(&self, out: &mut String) {
        let mut used: BTreeMap<(usize, usize), BTreeSet<usize>> = BTreeMap::new();
        for (index, tree) in self.plan.trees.iter().enumerate() {
            for ends in tree.hops.iter().flat_map(|hop| hop.path.windows(2)) {
                let ends = (self.names.get(ends[0].as_str()), self.names.get(ends[1].as_str()));
                if let (Some(&a), Some(&b)) = ends {
                    used.entry((a.min(b), a.max(b))).or_default().insert(index);
                }
            }
        }
        let mut labels = String::new();
        for link in &self.network.links {
            let ends = (self.names.get(link.a.as_str()), self.names.get(link.b.as_str()));
            let (Some(&a), Some(&b)) = ends else { continue };
            let line = |shift: f64| self.line(a, b, shift);
            let _ = writeln!(out, "<path d=\"{}\" fill=\"none\" stroke=\"#ccc\"/>", line(0.0));
            let trees = used.remove(&(a.min(b), a.max(b))).unwrap_or_default();
            let step = (BUNDLE / trees.len().max(1) as f64).min(2.5);
            for (place, &tree) in trees.iter().enumerate() {
                let shift = (place as f64 - (trees.len() - 1) as f64 / 2.0) * step;
                let colour = colour(tree, self.plan.trees.len());
                let (d, width) = (line(shift), step * 0.8);
                let _ = writeln!(
                    out,
                    "<path d=\"{d}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width:.2}\"/>"
                );
            }
            if self.network.links.len() <= LABELLED {
                let ((ax, ay), (bx, by)) = (self.at(a), self.at(b));
                let back = link.back_mbps.map_or_else(String::new, |back| format!(" / {back}"));
                let (x, y) = (f64::midpoint(ax, bx), f64::midpoint(ay, by) - BUNDLE / 2.0);
                let _ = writeln!(
                    labels,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"9\" fill=\"#666\" text-anchor=\"middle\" \
                     stroke=\"white\" stroke-width=\"3\" paint-order=\"stroke\">{}{back}</text>",
                    link.mbps
                );
            }
        }
        out.push_str(&labels);
    }

    /// A curve from one vertex to another; a bow where both are in one column.
    fn line(&self, a: usize, b: usize, shift: f64) -> String {
        let ((ax, ay), (bx, by)) = (self.at(a), self.at(b));
        let (first, second) = if self.layout.columns[a] == self.layout.columns[b] {
            (ax + COLUMN / 2.0, bx + COLUMN / 2.0)
        } else {
            (f64::midpoint(ax, bx), f64::midpoint(ax, bx))
        };
        let (ay, by) = (ay + shift, by + shift);
        format!("M{ax:.1} {ay:.1}C{first:.1} {ay:.1} {second:.1} {by:.1} {bx:.1} {by:.1}")
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
                     stroke-width=\"3\" paint-order=\"stroke\">{name}</text>",
                    x - 5.0,
                    y - 5.0,
                    y - 11.0
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
            let shown: String = name.chars().take(40).collect();
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

/// The colour of a tree: from blue over green to red.
pub(super) fn colour(index: usize, count: usize) -> String {
    let part = index as f64 / (count.max(2) - 1) as f64;
    let hue = 230.0 * (1.0 - part);
    // Neighbours differ in lightness too.
    let light = if index % 2 == 0 { 0.42 } else { 0.58 };
    let channel = |offset: f64| {
        let k = (offset + hue / 30.0) % 12.0;
        let chroma = 0.75 * f64::min(light, 1.0 - light);
        let value = light - chroma * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", channel(0.0), channel(8.0), channel(4.0))
}
