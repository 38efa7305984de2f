//! Curves between vertices, and arrows on them.

use std::fmt::Write as _;

/// A curve of Bézier: from, two that it leans to, to.
pub(super) struct Curve(pub(super) [(f64, f64); 4]);

impl Curve {
    /// As the `d` of a path.
    pub(super) fn path(&self) -> String {
        let [from, first, second, to] = self.0;
        format!(
            "M{:.1} {:.1}C{:.1} {:.1} {:.1} {:.1} {:.1} {:.1}",
            from.0, from.1, first.0, first.1, second.0, second.1, to.0, to.1
        )
    }

    /// Where the curve is after this part of it, 0 to 1, and where it leads there.
    fn at(&self, part: f64) -> [(f64, f64); 2] {
        let [from, first, second, to] = self.0;
        let rest = 1.0 - part;
        let of = |from: f64, first: f64, second: f64, to: f64| {
            let bent = 3.0 * rest * part * (rest * first + part * second);
            let at = rest.powi(3) * from + bent + part.powi(3) * to;
            let step = [first - from, second - first, to - second];
            (at, rest * rest * step[0] + 2.0 * rest * part * step[1] + part * part * step[2])
        };
        [of(from.0, first.0, second.0, to.0), of(from.1, first.1, second.1, to.1)]
    }

    /// Which way a tree uses a link, there, back or both. Arrows of trees side by side are one behind the other.
    pub(super) fn arrows(&self, out: &mut String, ways: [bool; 2], place: usize, colour: &str) {
        for (way, _) in ways.iter().enumerate().filter(|(_, used)| **used) {
            let part = 0.35 + 0.06 * (place % 4) as f64 + 0.1 * way as f64;
            let [(x, right), (y, down)] = self.at(part);
            let angle = down.atan2(right).to_degrees() + 180.0 * way as f64;
            let _ = writeln!(
                out,
                "<path d=\"M4 0L-4 -3.5V3.5z\" transform=\"translate({x:.1} {y:.1}) rotate({angle:.0})\" \
                 fill=\"{colour}\" stroke=\"white\" stroke-width=\"0.5\"/>"
            );
        }
    }
}
