//! A line per step, on standard error.

use std::{io::Write as _, time::Instant};

/// Says what happens, with the seconds since the start in front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    start: Instant,
    quiet: bool,
}

impl Progress {
    /// Starts the clock of a run.
    pub(crate) fn start(quiet: bool) -> Self {
        Self { start: Instant::now(), quiet }
    }

    /// Seconds since the start.
    pub(crate) fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// One line.
    pub(crate) fn say(&self, step: &str, text: &str) {
        if !self.quiet {
            // A closed terminal does not stop a run.
            let _ = writeln!(std::io::stderr(), "[{:6.1} s] {step:<10} {text}", self.now());
        }
    }

    /// Text as it is, also when quiet.
    pub(crate) fn show(text: &str) {
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// A warning, also when quiet.
    pub(crate) fn warn(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "[{:6.1} s] warning    {text}", self.now());
    }
}
