//! How is a stream held to its planned rate?
//!
//! A token bucket: what was not used is made up for later, but no more than what [`BURST`] allows.

use std::time::Duration;

use tokio::time::Instant;

/// Time that may be made up for.
const BURST: Duration = Duration::from_millis(100);
/// A hop may be this much faster than its tree is planned, so that it makes up for a pause.
pub(crate) const HOP_HEADROOM: f64 = 1.1;

/// Holds one stream to a rate.
#[derive(Debug)]
pub(crate) struct Pace {
    /// None where nothing is held back.
    bytes_per_second: Option<f64>,
    /// When all that has been let through would have taken its time.
    due: Instant,
}

impl Pace {
    /// Mbit/s of payload; no limit where that is none.
    pub(crate) fn new(rate_mbps: Option<f64>) -> Self {
        Self { bytes_per_second: rate_mbps.map(|mbps| mbps * 1e6 / 8.0), due: Instant::now() }
    }

    /// Lets `bytes` through, when it is time.
    pub(crate) async fn take(&mut self, bytes: u64) {
        let Some(rate) = self.bytes_per_second else { return };
        let now = Instant::now();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let start = self.due.max(earliest);
        if start > now {
            tokio::time::sleep_until(start).await;
        }
        let takes = Duration::try_from_secs_f64(bytes as f64 / rate).unwrap_or(Duration::ZERO);
        self.due = start + takes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paced_stream_has_its_rate_and_makes_up_for_short_pauses_only() {
        let mut pace = Pace::new(Some(8.0));
        let started = Instant::now();
        for _ in 0..11 {
            pace.take(100_000).await;
        }
        // 1 MB/s; the last one has not taken its time yet.
        let took = started.elapsed().as_secs_f64();
        assert!((took - 1.0).abs() < 0.01, "{took}");
        tokio::time::sleep(Duration::from_secs(10)).await;
        let started = Instant::now();
        for _ in 0..12 {
            pace.take(100_000).await;
        }
        let took = started.elapsed().as_secs_f64();
        assert!((took - 1.0).abs() < 0.01, "{took}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nothing_waits() {
        let mut pace = Pace::new(None);
        let started = Instant::now();
        pace.take(u64::MAX).await;
        pace.take(1).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
