//! Round-trip times as ping (iputils) computes and prints them.

use std::fmt;

use crate::report::PairRtt;

/// min/avg/max/mdev of one pair, in whole microseconds: ping computes in integers, so do we.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingStatistics {
    /// Probes sent.
    pub sent: u32,
    /// Replies.
    pub received: u32,
    /// Shortest, microseconds; 0 without a reply.
    pub min_micros: u64,
    /// Average.
    pub avg_micros: u64,
    /// Longest.
    pub max_micros: u64,
    /// Spread: sqrt(mean of squares - square of mean).
    pub mdev_micros: u64,
}

impl PingStatistics {
    /// From the round-trip times of the replies, in nanoseconds.
    pub fn new(sent: u32, rtt_nanos: &[u64]) -> Self {
        let micros: Vec<u128> = rtt_nanos.iter().map(|nanos| u128::from(nanos / 1000)).collect();
        let (Some(min), Some(max)) = (micros.iter().min(), micros.iter().max()) else {
            return Self { sent, ..Self::default() };
        };
        let count = micros.len() as u128;
        let sum: u128 = micros.iter().sum();
        let squares: u128 = micros.iter().map(|t| t * t).sum();
        // The order of operations is ping's (2019 and later, small sums): the division comes last.
        let variance = (squares - sum * sum / count) / count;
        Self {
            sent: sent.max(micros.len() as u32),
            received: micros.len() as u32,
            min_micros: *min as u64,
            avg_micros: (sum / count) as u64,
            max_micros: *max as u64,
            mdev_micros: square_root(variance) as u64,
        }
    }

    /// Lost probes, percent; 0 where none was sent.
    pub fn loss_percent(&self) -> f64 {
        if self.sent == 0 {
            return 0.0;
        }
        f64::from(self.sent - self.received) * 100.0 / f64::from(self.sent)
    }

    /// Average in milliseconds; none without a reply.
    pub fn avg_milliseconds(&self) -> Option<f64> {
        (self.received > 0).then(|| milliseconds(self.avg_micros))
    }

    /// Spread in milliseconds; none without a reply.
    pub fn mdev_milliseconds(&self) -> Option<f64> {
        (self.received > 0).then(|| milliseconds(self.mdev_micros))
    }

    /// The report's line on this pair. Without a reply the times are 0 and `received` says why.
    pub fn pair(&self, from: &str, to: &str) -> PairRtt {
        PairRtt {
            from: from.to_owned(),
            to: to.to_owned(),
            sent: self.sent,
            received: self.received,
            min: milliseconds(self.min_micros),
            avg: milliseconds(self.avg_micros),
            max: milliseconds(self.max_micros),
            mdev: milliseconds(self.mdev_micros),
        }
    }
}

/// ping's two closing lines, without the time in the first: `10 packets transmitted, 10 received, 0% packet loss` and
/// `rtt min/avg/max/mdev = 0.201/0.215/0.250/0.014 ms`.
impl fmt::Display for PingStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // C's %g: six significant digits, no trailing zeros.
        let loss = self.loss_percent();
        let decimals = if loss > 0.0 { (5.0 - loss.log10().floor()).clamp(0.0, 12.0) as usize } else { 0 };
        let loss = format!("{loss:.decimals$}");
        let loss =
            if loss.contains('.') { loss.trim_end_matches('0').trim_end_matches('.') } else { loss.as_str() };
        write!(f, "{} packets transmitted, {} received, {loss}% packet loss", self.sent, self.received)?;
        if self.received > 0 {
            let [min, avg, max, mdev] = [self.min_micros, self.avg_micros, self.max_micros, self.mdev_micros]
                .map(|t| format!("{}.{:03}", t / 1000, t % 1000));
            write!(f, "\nrtt min/avg/max/mdev = {min}/{avg}/{max}/{mdev} ms")?;
        }
        Ok(())
    }
}

fn milliseconds(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// ping's own square root: Newton's method from above, until it no longer falls. It gives one more than the whole root
/// just below some squares (8 gives 3), and so do we, since the figures are to be ping's.
fn square_root(value: u128) -> u128 {
    let mut root = value;
    let mut before = u128::MAX;
    while root > 0 && root < before {
        before = root;
        root = u128::midpoint(root, value / root);
    }
    root
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn as_ping_prints_it() {
        let statistics = PingStatistics::new(4, &[1_900_000, 7_200_000, 3_000_999]);
        assert_eq!(
            statistics.to_string(),
            "4 packets transmitted, 3 received, 25% packet loss\nrtt min/avg/max/mdev = 1.900/4.033/7.200/2.283 ms"
        );
        assert_eq!(
            PingStatistics::new(3, &[]).to_string(),
            "3 packets transmitted, 0 received, 100% packet loss"
        );
        assert!(PingStatistics::new(3, &[1; 2]).to_string().contains("33.3333% packet loss"));
        assert!(PingStatistics::new(100, &[1; 99]).to_string().contains(" 1% packet loss"));
        assert!(PingStatistics::new(3000, &vec![1; 2999]).to_string().contains(" 0.0333333% packet loss"));
        assert!(PingStatistics::new(1, &[1]).to_string().contains(" 0% packet loss"));
    }

    #[test]
    fn no_reply_is_no_time() {
        let statistics = PingStatistics::new(10, &[]);
        assert_eq!(statistics.avg_milliseconds(), None);
        assert!((statistics.loss_percent() - 100.0).abs() < f64::EPSILON);
        assert_eq!(statistics.pair("a", "b").received, 0);
    }

    #[test]
    fn the_root_is_pings() {
        for (value, root) in [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (8, 3), (9, 3), (10_000, 100)] {
            assert_eq!(square_root(value), root, "of {value}");
        }
    }

    proptest! {
        #[test]
        fn ordered_and_close_to_the_real_deviation(nanos in proptest::collection::vec(0_u64..10_000_000_000, 1..50)) {
            let s = PingStatistics::new(nanos.len() as u32, &nanos);
            prop_assert!(s.min_micros <= s.avg_micros && s.avg_micros <= s.max_micros);
            let n = nanos.len() as f64;
            let micros: Vec<f64> = nanos.iter().map(|t| (t / 1000) as f64).collect();
            let mean = micros.iter().sum::<f64>() / n;
            let deviation = (micros.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / n).sqrt();
            prop_assert!((s.mdev_micros as f64 - deviation).abs() <= 1.5, "{} {deviation}", s.mdev_micros);
        }

        #[test]
        fn no_input_overflows(sent in any::<u32>(), nanos in proptest::collection::vec(any::<u64>(), 0..5)) {
            let s = PingStatistics::new(sent, &nanos);
            prop_assert!((0.0..=100.0).contains(&s.loss_percent()));
        }
    }
}
