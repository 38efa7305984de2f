//! Is a hop slower than planned?
//!
//! A hop is slow when it stays below [`SLOW_BELOW`] of its planned rate for [`SLOW_FOR`] although its sender always has
//! something to send: one that waits for what comes from above says nothing about its own way.

use std::collections::BTreeMap;
use std::time::Duration;

/// Share of the planned rate.
pub const SLOW_BELOW: f64 = 0.7;
/// How long it must last.
pub const SLOW_FOR: Duration = Duration::from_secs(2);

/// Hops by sender, receiver and tree, each with the time since when it has been slow.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    since: BTreeMap<(usize, usize, usize), Duration>,
}

impl Watch {
    /// Takes in what a hop did since it was last looked at, until `now`; whether it has been slow for long enough. `busy`:
    /// it had something to send all the time.
    pub fn slow(
        &mut self,
        hop: (usize, usize, usize),
        planned_mbps: f64,
        mbps: f64,
        busy: bool,
        now: Duration,
    ) -> bool {
        if !busy || mbps >= SLOW_BELOW * planned_mbps {
            self.since.remove(&hop);
            return false;
        }
        let since = *self.since.entry(hop).or_insert(now);
        now.saturating_sub(since) >= SLOW_FOR
    }

    /// Forgets everything, as with a new plan.
    pub fn clear(&mut self) {
        self.since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_is_slow_after_two_seconds_in_a_row_below_seventy_percent() {
        let mut watch = Watch::default();
        let hop = (0, 1, 0);
        let at = |tenths: u64| Duration::from_millis(tenths * 100);
        assert!(!watch.slow(hop, 100.0, 69.0, true, at(0)));
        assert!(!watch.slow(hop, 100.0, 69.0, true, at(19)));
        assert!(watch.slow(hop, 100.0, 69.0, true, at(20)));
        assert!(!watch.slow(hop, 100.0, 71.0, true, at(25)));
        assert!(!watch.slow(hop, 100.0, 10.0, true, at(30)));
        // Waiting for data is not being slow.
        assert!(!watch.slow(hop, 100.0, 10.0, false, at(45)));
        assert!(!watch.slow(hop, 100.0, 10.0, true, at(50)));
        assert!(watch.slow(hop, 100.0, 10.0, true, at(70)));
    }
}
