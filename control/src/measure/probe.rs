//! One probe between two nodes.

use std::time::Duration;

use gridcast_core::network::PingStatistics;
use gridcast_proto::v1::{ProbeBandwidthRequest, ProbeLatencyRequest};

use super::ProbeAsk;
use crate::{Remote, StepFailure, remote::within};

/// Slow start doubles from 10 segments in each round trip: 12 of them reach 60 MB, the product of 1 Gbit/s and 0.5 s, and
/// a few more let the queue it has filled drain.
const OMIT_ROUND_TRIPS: f64 = 20.0;
/// A rate is taken over this many round trips, at least.
const MEASURED_ROUND_TRIPS: f64 = 10.0;
/// How long a lost probe is waited for.
const LATENCY_TIMEOUT: Duration = Duration::from_secs(1);
/// Share of a link that large probes may take, so that none queues behind the one before.
const PROBE_SHARE: f64 = 0.6;
/// What a probe may take beyond its own time: connecting, a starved machine, an agent that prepares its peer.
const MARGIN: Duration = Duration::from_secs(30);
/// What each round adds to the time that all of them may take beyond their own.
const MARGIN_OF_ROUND: Duration = Duration::from_secs(1);

/// What the rounds of one measurement may yet take beyond their own time, all together: without it agents that are slow
/// each time, but never quite too slow, would be measured for hours.
#[derive(Debug)]
pub(super) struct Slack(Duration);

impl Slack {
    pub(super) fn of(rounds: usize) -> Self {
        Self(MARGIN + MARGIN_OF_ROUND * u32::try_from(rounds).unwrap_or(u32::MAX))
    }

    /// What a probe of the next round may take beyond its own time.
    pub(super) fn margin(&self) -> Duration {
        self.0.min(MARGIN)
    }

    /// A round has taken `took`, of which `own` is the time of its probes.
    pub(super) fn spend(&mut self, took: Duration, own: Duration) {
        self.0 = self.0.saturating_sub(took.saturating_sub(own));
    }
}

/// How long one bandwidth probe lasts, at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Measured time; at 100 Mbit/s the default is 4 MB.
    pub(super) measured: Duration,
    /// Left out for slow start.
    pub(super) omit: Duration,
}

impl Default for Rate {
    fn default() -> Self {
        Self { measured: Duration::from_millis(300), omit: Duration::from_millis(100) }
    }
}

impl Rate {
    /// For as long as this round trip, in milliseconds, asks; as it is where none was measured.
    pub(super) fn at(self, rtt: Option<f64>) -> Self {
        let trips = |count: f64, least: Duration| {
            Duration::from_secs_f64((rtt.unwrap_or(0.0) * count / 1e3).min(20.0)).max(least)
        };
        Self {
            measured: trips(MEASURED_ROUND_TRIPS, self.measured),
            omit: trips(OMIT_ROUND_TRIPS, self.omit),
        }
    }

    /// How long a probe takes.
    pub(super) fn time(self) -> Duration {
        self.measured + self.omit
    }
}

/// Returns Mbit/s.
pub(super) async fn bandwidth(
    from: &Remote,
    to: &Remote,
    rate: Rate,
    margin: Duration,
) -> Result<f64, StepFailure> {
    let Rate { measured, omit } = rate;
    let request = ProbeBandwidthRequest {
        peer: Some(to.peer()),
        duration_millis: millis(measured),
        omit_millis: millis(omit),
        streams: 1,
        pod: from.pod(),
    };
    let reply = within(rate.time() + margin, from.agent().probe_bandwidth(request)).await;
    let what = format!("measuring bandwidth to {}", to.name);
    Ok(reply.map_err(|s| from.failed("ProbeFailed", &what, &s))?.mbps)
}

/// How long pings take, where the last is lost.
pub(super) fn ping_time(ask: &ProbeAsk, payload: u32, mbps: f64) -> Duration {
    interval(ask.interval, payload, mbps) * ask.count.saturating_add(1) + LATENCY_TIMEOUT
}

/// `mbps` is what the path carries, as far as it is known. Returns the statistics and whose clock stamped the probes.
pub(super) async fn ping(
    from: &Remote,
    to: &Remote,
    ask: &ProbeAsk,
    payload: u32,
    mbps: f64,
    margin: Duration,
) -> Result<(PingStatistics, String), StepFailure> {
    let interval = interval(ask.interval, payload, mbps);
    let request = ProbeLatencyRequest {
        peer: Some(to.peer()),
        payload_bytes: payload,
        count: ask.count,
        interval_micros: u32::try_from(interval.as_micros()).unwrap_or(u32::MAX),
        timeout_millis: millis(LATENCY_TIMEOUT + interval),
        pod: from.pod(),
    };
    let limit = ping_time(ask, payload, mbps) + margin;
    let reply = within(limit, from.agent().probe_latency(request)).await;
    let what = format!("measuring round-trip times to {}", to.name);
    let reply = reply.map_err(|s| from.failed("ProbeFailed", &what, &s))?;
    Ok((PingStatistics::new(reply.sent, &reply.rtt_nanos), reply.timestamps))
}

/// From one probe to the next: what was asked, or longer where the link needs longer to carry them.
fn interval(asked: Duration, payload: u32, mbps: f64) -> Duration {
    let carried = f64::from(payload) * 8.0 / (mbps * 1e6 * PROBE_SHARE);
    // A link of a few kbit/s does not make a run last for hours.
    asked.max(Duration::from_secs_f64(carried.min(5.0)))
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_are_always_a_little_late_do_not_go_on_for_hours() {
        let (own, rounds) = (Duration::from_millis(400), 1000);
        let mut slack = Slack::of(rounds);
        let mut took = Duration::ZERO;
        let mut done = 0;
        // Each takes nearly as long as it may at first.
        while slack.margin() > Duration::from_secs(29) {
            let round = own + Duration::from_secs(29);
            slack.spend(round, own);
            took += round;
            done += 1;
        }
        assert!(done < rounds / 10 && took < Duration::from_secs(1100), "{done} rounds in {took:?}");
        let mut usual = Slack::of(rounds);
        for _ in 0..rounds {
            usual.spend(own + Duration::from_millis(500), own);
        }
        assert_eq!(usual.margin(), MARGIN, "a busy machine is no reason to stop");
    }

    #[test]
    fn large_probes_do_not_queue_on_a_slow_link() {
        let asked = Duration::from_millis(10);
        assert_eq!(interval(asked, 64, 100.0), Duration::from_millis(10));
        assert!(interval(asked, 50_000, 10.0) > Duration::from_millis(40));
        assert_eq!(interval(asked, 50_000, f64::MAX), Duration::from_millis(10));
    }
}
