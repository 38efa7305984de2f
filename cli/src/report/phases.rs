//! The timeline as a picture: one bar for each phase, below each other, on one axis of seconds.

use gridcast_core::report::Timeline;
use maud::{Markup, html};

use super::view;

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 90.0;
const ROW: f64 = 28.0;

/// Empty markup where nothing was reached.
pub(super) fn picture(timeline: &Timeline) -> Markup {
    let phases = view::phases(timeline);
    let Some(end) = phases.last().map(|phase| phase.to) else { return html! {} };
    let whole = (end - timeline.created).max(1e-6);
    let x = |at: f64| LEFT + ((at - timeline.created) / whole).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let bottom = phases.len() as f64 * ROW + 6.0;
    let step = tick(whole);
    let ticks = (whole / step).floor() as u32;
    html! {
        svg.timeline viewBox=(format!("0 0 {WIDTH} {:.0}", bottom + 26.0)) role="img" aria-label="Timeline in seconds" {
            @for index in 0..=ticks {
                @let at = timeline.created + f64::from(index) * step;
                line.grid x1=(px(x(at))) x2=(px(x(at))) y1="0" y2=(px(bottom)) {}
                text.axis x=(px(x(at))) y=(px(bottom + 17.0)) text-anchor="middle" { (label(f64::from(index) * step)) " s" }
            }
            @for (row, phase) in phases.iter().enumerate() {
                @let y = row as f64 * ROW + 5.0;
                @let width = (x(phase.to) - x(phase.from)).max(2.0);
                @let took = view::seconds(phase.to - phase.from);
                text.name x=(px(LEFT - 10.0)) y=(px(y + 9.0)) dy="0.35em" text-anchor="end" { (phase.name) }
                rect.phase x=(px(x(phase.from))) y=(px(y)) width=(px(width)) height="18" rx="3" {
                    title { (phase.name) ": " (format!("{:.3}", phase.from)) " to " (format!("{:.3}", phase.to)) " s" }
                }
                text.took x=(px(x(phase.from) + width + 7.0)) y=(px(y + 9.0)) dy="0.35em" { (took) }
            }
        }
    }
}

/// A round step that gives 3 to 10 marks.
fn tick(whole: f64) -> f64 {
    let magnitude = 10_f64.powf((whole / 4.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| whole / step <= 8.0)
        .unwrap_or(magnitude * 10.0)
}

/// Seconds without trailing zeros.
fn label(seconds: f64) -> String {
    let text = format!("{seconds:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn px(length: f64) -> String {
    format!("{length:.1}")
}
