//! A matrix as a picture: rows receive, columns send, the brighter the worse.

use gridcast_core::report::Network;
use maud::{Markup, html};

use super::view::{self, Quantity};

/// Most hosts of a picture: beyond, cells are too small to see and the page too large to send.
pub(super) const MOST_HOSTS: usize = 64;

/// Length of the legend's bar.
const LEGEND: f64 = 200.0;
/// Longest name on an axis.
const NAME: usize = 20;

/// Cividis (Nuñez, Anderton, Renslow 2018): even steps of brightness, the same for all kinds of colour vision.
const STOPS: [(u8, u8, u8); 6] =
    [(0, 34, 78), (53, 69, 108), (102, 105, 112), (148, 142, 119), (200, 184, 102), (254, 232, 56)];

/// The scale of one picture.
struct Scale {
    best: f64,
    worst: f64,
}

impl Scale {
    /// From the best value to the worst; at least a quarter wide, so that noise does not look like a finding.
    fn new(summary: &view::Summary, high_is_worse: bool) -> Self {
        if high_is_worse {
            Self { best: summary.least, worst: summary.greatest.max(summary.least * 1.25) }
        } else {
            Self { best: summary.greatest, worst: summary.least.min(summary.greatest * 0.8) }
        }
    }

    /// 0 for the best, 1 for the worst.
    fn at(&self, value: f64) -> f64 {
        let span = self.worst - self.best;
        if span.abs() < f64::EPSILON { 0.0 } else { ((value - self.best) / span).clamp(0.0, 1.0) }
    }
}

/// Measures of the picture, in its own units (pixels at full size).
struct Layout {
    hosts: usize,
    cell: f64,
    left: f64,
    top: f64,
    /// Names above columns stand upright where they are wider than a column.
    upright: bool,
}

impl Layout {
    fn new(names: &[String]) -> Self {
        let hosts = names.len();
        let cell = match hosts {
            0..=5 => 54.0,
            6..=12 => 46.0,
            13..=20 => 30.0,
            21..=40 => 20.0,
            _ => 12.0,
        };
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
        let text = longest * Self::letter(cell) * 0.62;
        let upright = text > cell - 6.0;
        Self { hosts, cell, left: text + 34.0, top: if upright { text + 34.0 } else { 46.0 }, upright }
    }

    /// Height of a letter of an axis.
    fn letter(cell: f64) -> f64 {
        (cell * 0.6).clamp(8.0, 12.0)
    }

    fn width(&self) -> f64 {
        (self.left + self.hosts as f64 * self.cell + 8.0).max(self.left + LEGEND + 8.0)
    }

    fn height(&self) -> f64 {
        self.top + self.hosts as f64 * self.cell + 64.0
    }
}

/// The picture of one quantity with its axes and its legend. Empty markup where nothing was measured.
pub(super) fn picture(network: &Network, quantity: &Quantity<'_>) -> Markup {
    let Some(summary) = quantity.summary() else { return html! {} };
    let names: Vec<String> = network.hosts.iter().map(|name| short(name)).collect();
    let layout = Layout::new(&names);
    let scale = Scale::new(&summary, quantity.high_is_worse);
    let label = format!("{} in {} between {} hosts", quantity.title, quantity.unit, names.len());
    let (width, height) = (layout.width(), layout.height());
    html! {
        figure.map {
            figcaption { strong { (quantity.title) } " in " (quantity.unit) }
            svg viewBox=(format!("0 0 {width:.0} {height:.0}")) width=(format!("{width:.0}")) role="img" aria-label=(label) {
                (axes(network, &names, &layout))
                @for (destination, row) in quantity.rows.iter().enumerate().take(layout.hosts) {
                    @for (source, value) in row.iter().enumerate().take(layout.hosts) {
                        (cell(network, quantity, &layout, &scale, (destination, source), *value))
                    }
                }
                (legend(quantity, &layout, &scale))
            }
        }
    }
}

fn axes(network: &Network, names: &[String], layout: &Layout) -> Markup {
    let Layout { cell, left, top, upright, .. } = *layout;
    let size = format!("{:.1}", Layout::letter(cell));
    let middle = layout.hosts as f64 * cell / 2.0;
    let side = format!("rotate(-90 12 {:.1})", top + middle);
    html! {
        text.axis x=(px(left + middle)) y="14" text-anchor="middle" { "from" }
        text.axis x="12" y=(px(top + middle)) text-anchor="middle" transform=(side) { "to" }
        @for (index, name) in names.iter().enumerate() {
            @let centre = (index as f64 + 0.5) * cell;
            text.name x=(px(left - 7.0)) y=(px(top + centre)) dy="0.35em" text-anchor="end" font-size=(size) {
                title { (view::host(network, index)) } (name)
            }
            @if upright {
                @let turn = format!("rotate(-90 {:.1} {:.1})", left + centre, top - 7.0);
                text.name x=(px(left + centre)) y=(px(top - 7.0)) dy="0.35em" transform=(turn) font-size=(size) { (name) }
            } @else {
                text.name x=(px(left + centre)) y=(px(top - 8.0)) text-anchor="middle" font-size=(size) { (name) }
            }
        }
    }
}

fn cell(
    network: &Network,
    quantity: &Quantity<'_>,
    layout: &Layout,
    scale: &Scale,
    (destination, source): (usize, usize),
    value: Option<f64>,
) -> Markup {
    let gap = if layout.cell > 16.0 { 2.0 } else { 1.0 };
    let (x, y) = (layout.left + source as f64 * layout.cell, layout.top + destination as f64 * layout.cell);
    let side = px(layout.cell - gap);
    let class = if destination == source { "self" } else { "unknown" };
    let decimals = quantity.decimals();
    let pair = format!("{} -> {}", view::host(network, source), view::host(network, destination));
    let Some(value) = value else {
        return html! {
            rect class=(class) x=(px(x)) y=(px(y)) width=(side) height=(side) rx="2" {
                @if destination != source { title { (pair) ": not measured" } }
            }
        };
    };
    let (colour, ink) = colour(scale.at(value));
    let text = format!("{value:.decimals$}");
    // The value is written where it fits.
    let letter = (layout.cell - 11.0) / (text.len() as f64 * 0.6);
    html! {
        g {
            title { (pair) ": " (text) " " (quantity.unit) }
            rect x=(px(x)) y=(px(y)) width=(side) height=(side) rx="2" fill=(colour) {}
            @if letter >= 8.0 {
                text.value x=(px(x + (layout.cell - gap) / 2.0)) y=(px(y + (layout.cell - gap) / 2.0)) dy="0.35em"
                    text-anchor="middle" font-size=(px(letter.min(13.0))) fill=(ink) { (text) }
            }
        }
    }
}

fn legend(quantity: &Quantity<'_>, layout: &Layout, scale: &Scale) -> Markup {
    const STEPS: usize = 48;
    let y = layout.top + layout.hosts as f64 * layout.cell + 16.0;
    let decimals = quantity.decimals();
    let left = layout.left;
    html! {
        @for step in 0..STEPS {
            @let share = step as f64 / STEPS as f64;
            rect x=(px(left + share * LEGEND)) y=(px(y)) width=(px(LEGEND / STEPS as f64 + 0.6)) height="10"
                fill=(colour(share).0) {}
        }
        text.axis x=(px(left)) y=(px(y + 26.0)) { (format!("{:.decimals$}", scale.best)) }
        text.axis x=(px(left + LEGEND)) y=(px(y + 26.0)) text-anchor="end" { (format!("{:.decimals$}", scale.worst)) }
        text.axis x=(px(left + LEGEND / 2.0)) y=(px(y + 26.0)) text-anchor="middle" {
            "brighter is " @if quantity.high_is_worse { "longer" } @else { "slower" }
        }
    }
}

/// The colour of a share of the scale, and of text on it.
fn colour(share: f64) -> (String, &'static str) {
    let position = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let index = (position.floor() as usize).min(STOPS.len() - 2);
    let rest = position - index as f64;
    let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * rest).round() as u8;
    let (a, b) = (STOPS[index], STOPS[index + 1]);
    let (red, green, blue) = (mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2));
    let ink = if share > 0.52 { "#111" } else { "#fff" };
    (format!("#{red:02x}{green:02x}{blue:02x}"), ink)
}

/// A name that fits an axis: the end tells hosts apart, so the middle goes.
fn short(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= NAME {
        return name.to_owned();
    }
    let half = (NAME - 1) / 2;
    letters[..half].iter().chain(&['\u{2026}']).chain(&letters[letters.len() - half..]).collect()
}

fn px(length: f64) -> String {
    format!("{length:.1}")
}
