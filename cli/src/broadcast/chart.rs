//! A simulation as one SVG: when each host has everything.
//!
//! A row for each host, time to the right. A tick says when it would have everything at its bound, a mark in the colour and
//! the form of each strategy when it has. Faults are dashed lines. Where times are far apart the axis is logarithmic.

use std::fmt::Write as _;

use gridcast_core::broadcast::plan::Strategy;

use crate::report::parts::size;

use super::{
    counted, percent, shortened,
    simulation::{Carried, FaultAt, Node, Simulation},
    summary::{ideal, seconds},
    svg, word,
};

const MARGIN: f64 = 24.0;
const ROW: f64 = 18.0;
/// Width of the plot, and of what stands behind it.
const PLOT: f64 = 560.0;
const FIGURES: f64 = 300.0;
const NEVER: f64 = 44.0;
/// Least width of all: heading and legend.
const LEAST: f64 = 900.0;
/// Width of a letter of a name, and most letters of one.
const LETTER: f64 = 7.0;
const NAME: usize = 40;
/// Most faults with their names.
const NAMED_FAULTS: usize = 12;

pub(super) fn render(simulation: &Simulation) -> String {
    Chart::new(simulation).map_or_else(String::new, |chart| chart.render())
}

/// Where things are.
struct Chart<'a> {
    simulation: &'a Simulation,
    first: &'a Carried,
    axis: Axis,
    left: f64,
    /// Where the first row is, and where the last one ends.
    top: f64,
    bottom: f64,
}

impl<'a> Chart<'a> {
    fn new(simulation: &'a Simulation) -> Option<Self> {
        let first = simulation.strategies.first()?;
        let longest = first.nodes.iter().map(|node| node.name.len()).max().unwrap_or(0).min(NAME);
        let faults = simulation.faults.len().min(NAMED_FAULTS) as f64;
        let top = 58.0 + (simulation.strategies.len() as f64 + 1.0) * ROW + faults * 12.0 + 2.0 * ROW;
        Some(Self {
            simulation,
            first,
            axis: Axis::new(simulation),
            left: MARGIN + (longest as f64 * LETTER).max(40.0) + 10.0,
            top,
            bottom: top + first.nodes.len() as f64 * ROW,
        })
    }

    fn render(&self) -> String {
        let figures = if self.simulation.strategies.len() == 1 { FIGURES } else { MARGIN };
        let width = (self.left + PLOT + NEVER + figures).max(LEAST);
        let height = self.bottom + 2.0 * ROW + MARGIN;
        let mut out = svg((width, height), 12);
        self.heading(&mut out);
        self.grid(&mut out);
        self.faults(&mut out);
        for (row, node) in self.first.nodes.iter().enumerate() {
            self.row(&mut out, self.top + (row as f64 + 0.5) * ROW, node);
        }
        out.push_str("</svg>\n");
        out
    }

    fn heading(&self, out: &mut String) {
        let Simulation { size_bytes, bound_mbps, source, .. } = self.simulation;
        let (data, source) = (size(*size_bytes), shortened(source, NAME));
        let chunks = size(self.first.chunk_bytes);
        let hosts = counted(self.first.nodes.len(), "host");
        text(
            out,
            (MARGIN, 28.0),
            "font-size=\"16\" font-weight=\"bold\"",
            &format!("{data} in chunks of {chunks} from {source} to {hosts}: when each has everything"),
        );
        let mut y = 58.0;
        for carried in &self.simulation.strategies {
            let _ = writeln!(out, "{}", mark(carried.strategy, MARGIN + 7.0, y - 4.0));
            let complete = carried.nodes.iter().filter(|node| node.seconds.is_some()).count();
            let missing = match carried.nodes.len() - complete {
                0 => String::new(),
                missing => format!("; {} never", counted(missing, "host")),
            };
            let told = format!(
                "{}: {:.1} Mbit/s in all, {:.1} % of the bound of {bound_mbps:.1}; last after {} s{missing}",
                word(carried.strategy),
                carried.aggregate_mbps,
                self.simulation.percent(carried),
                seconds(carried.seconds),
            );
            text(out, (MARGIN + 22.0, y), "", &told);
            y += ROW;
        }
        let _ = writeln!(out, "{}", tick(MARGIN + 7.0, y - 4.0));
        text(out, (MARGIN + 22.0, y), "", "at its bound, as if it were alone");
    }

    /// The axis above and below, and a line at each of its figures.
    fn grid(&self, out: &mut String) {
        for &time in &self.axis.ticks {
            let x = self.x(time);
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"#ddd\"/>",
                self.top - 4.0,
                self.bottom + 4.0
            );
            for y in [self.top - 8.0, self.bottom + 16.0] {
                text(out, (x, y), "font-size=\"11\" fill=\"#555\" text-anchor=\"middle\"", &figure(time));
            }
        }
        let missing = |carried: &Carried| carried.nodes.iter().any(|node| node.seconds.is_none());
        if self.simulation.strategies.iter().any(missing) {
            let at = (self.left + PLOT + 6.0, self.top - 8.0);
            text(out, at, "font-size=\"11\" fill=\"#555\"", "never");
        }
        let scale = if self.axis.logarithmic { "seconds, logarithmic" } else { "seconds" };
        let centre = "font-size=\"11\" fill=\"#555\" text-anchor=\"middle\"";
        text(out, (self.left + PLOT / 2.0, self.bottom + 32.0), centre, scale);
    }

    /// A dashed line for each, and its name on a line of its own.
    fn faults(&self, out: &mut String) {
        let named = self.simulation.faults.len().min(NAMED_FAULTS);
        let mut faults: Vec<&FaultAt> = self.simulation.faults.iter().collect();
        faults.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        for (number, fault) in faults.into_iter().enumerate() {
            if fault.seconds > self.axis.end {
                continue;
            }
            let x = self.x(fault.seconds);
            let above = self.top - 2.0 * ROW + 6.0 - 12.0 * (named - number.min(named)) as f64 + 12.0;
            let _ = writeln!(
                out,
                "<path d=\"M{x:.1} {above:.1}V{:.1}\" stroke=\"#c00\" stroke-dasharray=\"4 3\"/>",
                self.bottom
            );
            if number < named {
                // To the left where there is no room to the right.
                let (x, anchor) =
                    if x > self.left + PLOT / 2.0 { (x - 4.0, "end") } else { (x + 4.0, "start") };
                let style = format!("font-size=\"10\" fill=\"#c00\" text-anchor=\"{anchor}\"");
                let told = format!("{} s: {}", seconds(fault.seconds), shortened(&fault.fault, NAME));
                text(out, (x, above + 4.0), &style, &told);
            }
        }
    }

    fn row(&self, out: &mut String, y: f64, node: &Node) {
        let (left, right) = (self.left, self.left + PLOT);
        let _ = writeln!(
            out,
            "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#ccc\" stroke-dasharray=\"1 3\"/>"
        );
        let anchor = "text-anchor=\"end\"";
        text(out, (left - 10.0, y + 4.0), anchor, &shortened(&node.name, NAME));
        let at_bound = ideal(self.simulation, node);
        if let Some(ideal) = at_bound.filter(|&ideal| ideal <= self.axis.end) {
            let _ = writeln!(out, "{}", tick(self.x(ideal), y));
        }
        let strategies = &self.simulation.strategies;
        // The first one is drawn last, above the others.
        for (number, carried) in strategies.iter().enumerate().rev() {
            let found = carried.nodes.binary_search_by(|other| other.name.cmp(&node.name));
            let Some(node) = found.ok().and_then(|at| carried.nodes.get(at)) else { continue };
            // Side by side where several end at once.
            let shift = (number as f64 - (strategies.len() - 1) as f64 / 2.0) * 1.2;
            match node.seconds {
                Some(time) => {
                    let time = time + node.joined_seconds.unwrap_or(0.0);
                    let _ = writeln!(out, "{}", mark(carried.strategy, self.x(time), y + shift));
                }
                None if strategies.len() > 1 => {
                    let x = right + 10.0 + NEVER * number as f64 / strategies.len() as f64;
                    let _ = writeln!(out, "{}", cross(colour(carried.strategy), x, y));
                }
                None => {
                    let _ = writeln!(out, "{}", cross("#c00", right + 10.0, y));
                }
            }
        }
        if let [_] = strategies.as_slice() {
            self.figures(out, y, node, at_bound);
        }
    }

    /// What there is to say of a host where there is one strategy.
    fn figures(&self, out: &mut String, y: f64, node: &Node, at_bound: Option<f64>) {
        let at = (self.left + PLOT + 24.0, y + 4.0);
        match (node.seconds, &node.failed, at_bound) {
            (Some(after), _, Some(ideal)) => {
                let told = format!("{} s, {:.1} % of its bound", seconds(after), percent(ideal, after));
                text(out, at, "", &told);
            }
            (Some(after), _, None) => text(out, at, "", &format!("{} s after it joined", seconds(after))),
            (None, Some(reason), _) => text(out, at, "fill=\"#c00\"", &shortened(reason, 48)),
            (None, None, _) => {}
        }
    }

    fn x(&self, time: f64) -> f64 {
        self.left + self.axis.part(time) * PLOT
    }
}

/// Time to the right.
struct Axis {
    logarithmic: bool,
    begin: f64,
    end: f64,
    ticks: Vec<f64>,
}

impl Axis {
    fn new(simulation: &Simulation) -> Self {
        let nodes = simulation.strategies.iter().flat_map(|carried| &carried.nodes);
        let end = |node: &Node| Some(node.seconds? + node.joined_seconds.unwrap_or(0.0));
        let times = nodes.flat_map(|node| [end(node), ideal(simulation, node)]).flatten();
        let times: Vec<f64> = times.filter(|&time| time > 0.0 && time.is_finite()).collect();
        let last = times.iter().copied().fold(0.0, f64::max);
        let first = times.iter().copied().fold(f64::INFINITY, f64::min).min(last);
        if last <= 0.0 {
            return Self { logarithmic: false, begin: 0.0, end: 1.0, ticks: vec![0.0, 1.0] };
        }
        if last > 20.0 * first {
            let (begin, end) = (first / 1.25, last * 1.15);
            let decades = begin.log10().floor() as i32..=end.log10().ceil() as i32;
            let steps: &[f64] = if last < 1e3 * first { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
            let ticks = ticks.filter(|tick| (begin..=end).contains(tick)).collect();
            return Self { logarithmic: true, begin, end, ticks };
        }
        let end = last * 1.05;
        let rough = end / 7.0;
        let decade = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade).into_iter().find(|&step| step >= rough);
        let step = step.unwrap_or(rough);
        let ticks = (0..=(end / step).floor() as u32).map(|tick| f64::from(tick) * step).collect();
        Self { logarithmic: false, begin: 0.0, end, ticks }
    }

    /// Part of the axis, 0 to 1.
    fn part(&self, time: f64) -> f64 {
        if self.logarithmic {
            ((time.max(self.begin) / self.begin).ln() / (self.end / self.begin).ln()).clamp(0.0, 1.0)
        } else {
            ((time - self.begin) / (self.end - self.begin)).clamp(0.0, 1.0)
        }
    }
}

/// A figure of the axis, without digits that say nothing.
fn figure(time: f64) -> String {
    let text = format!("{time:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn text(out: &mut String, (x, y): (f64, f64), style: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{text}</text>");
}

/// When a host would have everything at its bound.
fn tick(x: f64, y: f64) -> String {
    format!("<path d=\"M{x:.1} {:.1}v14\" stroke=\"#222\" stroke-width=\"2\"/>", y - 7.0)
}

fn cross(colour: &str, x: f64, y: f64) -> String {
    format!(
        "<path d=\"M{:.1} {:.1}l8 8m0 -8l-8 8\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>",
        x - 4.0,
        y - 4.0
    )
}

/// Colours that people who see few of them tell apart too (Okabe and Ito).
fn colour(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Stable => "#0072b2",
        Strategy::Flat => "#777777",
        Strategy::Random => "#e69f00",
        Strategy::DepthFirst => "#009e73",
        Strategy::Fpfr => "#cc79a7",
        Strategy::Dijkstra => "#d55e00",
        Strategy::DijkstraEarliest => "#56b4e9",
        Strategy::Chain => "#6b3d1e",
    }
}

/// The mark of a strategy, around a point.
fn mark(strategy: Strategy, x: f64, y: f64) -> String {
    let form = match strategy {
        // A circle, a square, four triangles, a diamond, a plus.
        Strategy::Stable => "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
        Strategy::Flat => "m-4 -4h8v8h-8z",
        Strategy::Random => "m0 -5l5 9h-10z",
        Strategy::DepthFirst => "m0 -6l6 6l-6 6l-6 -6z",
        Strategy::Fpfr => "m0 5l5 -9h-10z",
        Strategy::Dijkstra => "m5 0l-9 5v-10z",
        Strategy::DijkstraEarliest => "m-5 0l9 5v-10z",
        Strategy::Chain => "m-2 -6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
    };
    let colour = colour(strategy);
    format!("<path d=\"M{x:.1} {y:.1}{form}\" fill=\"{colour}\" stroke=\"white\" stroke-width=\"0.7\"/>")
}
