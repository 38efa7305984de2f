//! How fast does each stream run at each moment?
//!
//! Streams have ceilings (their planned rates) and share arcs and budgets max-min fairly. As long as the ceilings fit, each
//! runs at its own and nobody is looked at but the one that starts or ends. Where they do not, all rates are computed by
//! progressive filling: the streams below the level of the tightest resource run at their ceilings, those on it at its
//! level, the rest on what is left; at most as many rounds as there are streams and resources.

use std::collections::{BTreeMap, HashMap};

use super::super::plan::sharing::Resource;

/// Ceilings may exceed a capacity by this part of it: rounding errors of sums.
const TOLERANCE: f64 = 1e-6;

/// When a stream ends if nothing changes; never where it stands still.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prospect {
    pub(super) stream: u64,
    pub(super) version: u64,
    /// Nanoseconds since the beginning.
    pub(super) end: Option<u64>,
}

#[derive(Clone, Debug)]
struct Stream {
    uses: Vec<(usize, f64)>,
    ceiling_mbps: f64,
    rate_mbps: f64,
    bits_left: f64,
    bits_sent: f64,
    since: u64,
    version: u64,
}

#[derive(Clone, Debug)]
struct Shared {
    capacity_mbps: f64,
    /// Sum of the ceilings of those that use it.
    wanted_mbps: f64,
    users: usize,
}

impl Shared {
    fn is_short(&self) -> bool {
        self.users > 0 && self.wanted_mbps > self.capacity_mbps * (1.0 + TOLERANCE)
    }
}

/// All streams that run.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    /// For looking up only: nothing is computed in its order.
    places: HashMap<Resource, usize>,
    shared: Vec<Shared>,
    streams: BTreeMap<u64, Stream>,
    /// Resources whose users want more than there is.
    short: usize,
    next: u64,
}

impl Links {
    /// Starts a stream of `bits` that uses these resources, each with how often and its capacity. Gives its number.
    pub(super) fn start(
        &mut self,
        now: u64,
        uses: impl Iterator<Item = (Resource, f64, f64)>,
        ceiling_mbps: f64,
        bits: f64,
    ) -> (u64, Vec<Prospect>) {
        let uses: Vec<(usize, f64)> =
            uses.map(|(resource, count, capacity)| (self.place(resource, capacity), count)).collect();
        for &(place, count) in &uses {
            self.load(place, ceiling_mbps * count, 1);
        }
        self.next += 1;
        let stream = Stream {
            uses,
            ceiling_mbps,
            rate_mbps: 0.0,
            bits_left: bits,
            bits_sent: 0.0,
            since: now,
            version: 0,
        };
        self.streams.insert(self.next, stream);
        let changed = if self.short > 0 {
            self.share(now)
        } else {
            self.set_rate(now, self.next, ceiling_mbps).into_iter().collect()
        };
        (self.next, changed)
    }

    /// Ends a stream, finished or not. Gives the bits that it carried.
    pub(super) fn stop(&mut self, now: u64, number: u64) -> (f64, Vec<Prospect>) {
        self.settle(now, number);
        let Some(stream) = self.streams.remove(&number) else { return (0.0, Vec::new()) };
        let was_short = self.short > 0;
        for &(place, count) in &stream.uses {
            self.load(place, -stream.ceiling_mbps * count, -1);
        }
        (stream.bits_sent, if was_short { self.share(now) } else { Vec::new() })
    }

    /// Whether this prospect still holds.
    pub(super) fn holds(&self, prospect: Prospect) -> bool {
        self.streams.get(&prospect.stream).is_some_and(|stream| stream.version == prospect.version)
    }

    /// What a stream has carried until now, bits.
    pub(super) fn sent(&mut self, now: u64, number: u64) -> f64 {
        self.settle(now, number);
        self.streams.get(&number).map_or(0.0, |stream| stream.bits_sent)
    }

    /// A resource has another capacity from now on.
    pub(super) fn set_capacity(&mut self, now: u64, resource: Resource, mbps: f64) -> Vec<Prospect> {
        let place = self.place(resource, mbps);
        let was_short = self.short > 0;
        self.short -= usize::from(self.shared[place].is_short());
        self.shared[place].capacity_mbps = mbps;
        self.short += usize::from(self.shared[place].is_short());
        if was_short || self.short > 0 { self.share(now) } else { Vec::new() }
    }

    fn place(&mut self, resource: Resource, capacity_mbps: f64) -> usize {
        *self.places.entry(resource).or_insert_with(|| {
            self.shared.push(Shared { capacity_mbps, wanted_mbps: 0.0, users: 0 });
            self.shared.len() - 1
        })
    }

    fn load(&mut self, place: usize, mbps: f64, users: isize) {
        let shared = &mut self.shared[place];
        self.short -= usize::from(shared.is_short());
        shared.users = shared.users.saturating_add_signed(users);
        // Begins again at nothing, so that errors do not add up.
        shared.wanted_mbps = if shared.users == 0 { 0.0 } else { shared.wanted_mbps + mbps };
        self.short += usize::from(shared.is_short());
    }

    fn settle(&mut self, now: u64, number: u64) {
        if let Some(stream) = self.streams.get_mut(&number) {
            // Mbit/s over nanoseconds are thousandths of a bit.
            let bits = (stream.rate_mbps * (now - stream.since) as f64 / 1e3).min(stream.bits_left);
            stream.bits_left -= bits;
            stream.bits_sent += bits;
            stream.since = now;
        }
    }

    fn set_rate(&mut self, now: u64, number: u64, mbps: f64) -> Option<Prospect> {
        let old = self.streams.get(&number)?.rate_mbps;
        if (old - mbps).abs() <= old * 1e-12 && mbps > 0.0 {
            return None;
        }
        self.settle(now, number);
        let stream = self.streams.get_mut(&number)?;
        stream.rate_mbps = mbps;
        stream.version += 1;
        let nanos = (stream.bits_left / mbps * 1e3).ceil();
        let end = (nanos < 1e18).then(|| now + nanos as u64);
        Some(Prospect { stream: number, version: stream.version, end })
    }

    /// The fair rates of all.
    fn share(&mut self, now: u64) -> Vec<Prospect> {
        let rates = self.fair();
        rates.into_iter().filter_map(|(number, rate)| self.set_rate(now, number, rate)).collect()
    }

    fn fair(&self) -> Vec<(u64, f64)> {
        let mut left: Vec<f64> = self.shared.iter().map(|shared| shared.capacity_mbps).collect();
        let mut weight = vec![0.0; self.shared.len()];
        let mut growing: Vec<(u64, &Stream)> =
            self.streams.iter().map(|(&number, stream)| (number, stream)).collect();
        growing.sort_by(|(_, a), (_, b)| a.ceiling_mbps.total_cmp(&b.ceiling_mbps));
        for (place, count) in growing.iter().flat_map(|(_, stream)| &stream.uses) {
            weight[*place] += count;
        }
        let mut rates = Vec::with_capacity(growing.len());
        while let Some((_, first)) = growing.first() {
            let levels = left
                .iter()
                .zip(&weight)
                .map(|(left, &weight)| if weight > 1e-9 { (left / weight).max(0.0) } else { f64::INFINITY });
            let (tightest, level) = levels.enumerate().fold((0, f64::INFINITY), |least, (place, level)| {
                if level < least.1 { (place, level) } else { least }
            });
            let below = first.ceiling_mbps <= level;
            let stops = |stream: &Stream| {
                let on_it = stream.uses.iter().any(|&(place, _)| place == tightest);
                if below { stream.ceiling_mbps <= level } else { on_it }
            };
            let (stopped, rest): (Vec<_>, Vec<_>) =
                growing.into_iter().partition(|(_, stream)| stops(stream));
            for (number, stream) in stopped {
                let rate = stream.ceiling_mbps.min(level);
                for &(place, count) in &stream.uses {
                    left[place] -= rate * count;
                    weight[place] -= count;
                }
                rates.push((number, rate));
            }
            growing = rest;
        }
        rates
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "these rates are exact")]

    use super::*;

    fn arc(number: usize, mbps: f64) -> (Resource, f64, f64) {
        (Resource::Arc(number), 1.0, mbps)
    }

    #[test]
    fn streams_share_fairly_below_their_ceilings_and_speed_up_when_others_end() {
        let mut links = Links::default();
        let (slow, _) = links.start(0, [arc(0, 100.0)].into_iter(), 20.0, 1e9);
        let (a, _) = links.start(0, [arc(0, 100.0)].into_iter(), 60.0, 1e9);
        let (b, changed) = links.start(0, [arc(0, 100.0), arc(1, 1000.0)].into_iter(), 70.0, 1e9);
        let rate = |links: &Links, stream| links.streams[&stream].rate_mbps;
        assert_eq!([slow, a, b].map(|stream| rate(&links, stream)), [20.0, 40.0, 40.0]);
        assert_eq!(changed.len(), 2);
        // A second later: 40 Mbit are through.
        let (bits, changed) = links.stop(1_000_000_000, a);
        assert_eq!(bits, 40e6);
        assert_eq!([slow, b].map(|stream| rate(&links, stream)), [20.0, 70.0]);
        assert_eq!(changed[0].end, Some(1_000_000_000 + 13_714_285_715));
        links.set_capacity(1_000_000_000, Resource::Arc(1), 0.0);
        assert_eq!([slow, b].map(|stream| rate(&links, stream)), [20.0, 0.0]);
    }
}
