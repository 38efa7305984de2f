//! When does a packet leave a link, and does it at all?

use super::packet::{Packet, Window};

/// Bytes of a full frame on the wire for each 1448 bytes of TCP payload: what turns goodput into wire rate.
const WIRE_PER_GOODPUT: f64 = 1538.0 / 1448.0;
/// A queue holds two datagrams of 50,000 bytes, the larger of the default probes: 34 fragments, 52,292 bytes on the
/// wire. That is the floor where links are slow: 0.1 s at 10 Mbit/s.
const LEAST_DEFAULT_QUEUE: f64 = 131_072.0;
/// What a queue holds beyond one round trip, seconds: senders on a busy machine pause for a few milliseconds and
/// then send at once what they owe.
const PAUSE_SECONDS: f64 = 0.004;
/// Super-packets are cut so that no part keeps a link longer than this, nanoseconds: a part is delivered at once when
/// its last bit arrives, and other traffic waits for all of it. Half of what TCP itself sends at once, about 1 ms.
const LONGEST_PART_NS: f64 = 500_000.0;
/// Nor does a part fill more of a queue than this.
const PART_OF_QUEUE: u64 = 4;

/// What a link has taken of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Number of segments, the first ones of the window.
    pub(crate) count: u32,
    /// When their first bit arrives at the other end, nanoseconds.
    pub(crate) head_ns: u64,
    /// When their last bit does.
    pub(crate) tail_ns: u64,
}

/// What passed a link, and what did not. Bytes are bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Passage {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped_packets: u64,
    pub(crate) dropped_bytes: u64,
    pub(crate) lost_packets: u64,
    pub(crate) max_queue_bytes: u64,
}

/// One direction of a link, or a budget of a host: a rate with a drop-tail queue, then loss and delay.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    ns_per_byte: f64,
    queue_bytes: u64,
    delay_ns: u64,
    loss: f64,
    random: Random,
    /// When the last bit of what is queued has left, nanoseconds.
    free_ns: f64,
    pub(crate) passage: Passage,
}

/// What a link is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkSpec {
    /// Mbit/s of TCP goodput at MTU 1500.
    pub(crate) mbps: f64,
    /// One way, milliseconds.
    pub(crate) delay_ms: f64,
    /// Packets lost at random, percent.
    pub(crate) loss_percent: f64,
    /// Bytes on the wire.
    pub(crate) queue_bytes: u64,
}

/// The queue where none is declared: one longest round trip of the network at the link's rate, as is the custom of
/// routers, plus what covers a pause of a sender; at least two large probes.
pub(crate) fn default_queue_bytes(mbps: f64, longest_rtt_ms: f64) -> u64 {
    let bytes_per_second = mbps * WIRE_PER_GOODPUT * 1e6 / 8.0;
    (bytes_per_second * (longest_rtt_ms / 1e3 + PAUSE_SECONDS)).max(LEAST_DEFAULT_QUEUE) as u64
}

impl Link {
    pub(crate) fn new(spec: LinkSpec, seed: u64) -> Self {
        Self {
            ns_per_byte: 8000.0 / (spec.mbps * WIRE_PER_GOODPUT),
            queue_bytes: spec.queue_bytes,
            delay_ns: (spec.delay_ms * 1e6) as u64,
            loss: spec.loss_percent / 100.0,
            random: Random(seed),
            free_ns: 0.0,
            passage: Passage::default(),
        }
    }

    /// The largest part of a super-packet that should be sent over this link at once, bytes on the wire.
    pub(crate) fn part_bytes(&self) -> u64 {
        ((LONGEST_PART_NS / self.ns_per_byte) as u64).min(self.queue_bytes / PART_OF_QUEUE)
    }

    /// Time that so many bytes take, nanoseconds.
    pub(crate) fn takes_ns(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.ns_per_byte).round() as u64
    }

    /// When something could begin to leave that comes at `now_ns`, if nothing else comes before.
    pub(crate) fn begins_ns(&self, now_ns: u64) -> u64 {
        now_ns.max(self.free_ns as u64)
    }

    /// Queues as many segments of the window as there is room for at time `now_ns`, none where there is no room. An
    /// idle link takes one segment whatever its queue is.
    pub(crate) fn admit(&mut self, now_ns: u64, packet: &Packet, window: Window) -> Option<Sent> {
        let now = now_ns as f64;
        let backlog = ((self.free_ns - now) / self.ns_per_byte).max(0.0);
        let room = self.queue_bytes as f64 - backlog;
        let all = packet.wire_bytes(window);
        let count = if all as f64 <= room {
            window.count
        } else {
            let fit = (room / packet.frame_bytes() as f64).max(0.0) as u32;
            fit.max(u32::from(backlog == 0.0)).min(window.count)
        };
        let taken = if count == 0 { 0 } else { packet.wire_bytes(Window { count, ..window }) };
        self.passage.dropped_packets += u64::from(window.count - count);
        self.passage.dropped_bytes += all - taken;
        if count == 0 {
            return None;
        }
        self.passage.packets += u64::from(count);
        self.passage.bytes += taken;
        self.passage.max_queue_bytes = self.passage.max_queue_bytes.max(backlog as u64 + taken);
        let begins = self.free_ns.max(now);
        self.free_ns = begins + taken as f64 * self.ns_per_byte;
        let arrives = |left: f64| left.round() as u64 + self.delay_ns;
        Some(Sent { count, head_ns: arrives(begins), tail_ns: arrives(self.free_ns) })
    }

    /// Whether the next segment is lost on the way.
    pub(crate) fn loses(&mut self) -> bool {
        // Without loss no number is drawn, so that nothing can be lost and one lossy link does not shift another's.
        let lost = self.loss > 0.0 && self.random.fraction() < self.loss;
        self.passage.lost_packets += u64::from(lost);
        lost
    }

    /// One way, nanoseconds.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// Whether it can lose any.
    pub(crate) fn is_lossy(&self) -> bool {
        self.loss > 0.0
    }
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): any seed is good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// At least 0, below 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::packet::{Account, tests::packet};
    use super::*;

    const LINK: LinkSpec = LinkSpec { mbps: 100.0, delay_ms: 0.0, loss_percent: 0.0, queue_bytes: 15_380 };

    /// A datagram of 1500 bytes.
    fn full() -> Packet {
        Packet::read(&packet(Ipv4Addr::LOCALHOST, 17, &[0; 1480], 0), &Account::default()).unwrap()
    }

    #[test]
    fn full_segments_take_the_time_of_their_payload_at_the_declared_rate() {
        let mut link = Link::new(LINK, 0);
        let packet = full();
        let tail = |link: &mut Link, now| link.admit(now, &packet, packet.whole()).unwrap().tail_ns;
        // 1448 bytes at 100 Mbit/s.
        assert_eq!(tail(&mut link, 1000), 1000 + 115_840);
        assert_eq!(tail(&mut link, 1000), 1000 + 2 * 115_840);
        assert_eq!(tail(&mut link, 10_000_000), 10_000_000 + 115_840, "idle time is lost");
        let mut far = Link::new(LinkSpec { delay_ms: 2.0, ..LINK }, 0);
        let sent = Sent { count: 1, head_ns: 2_000_000, tail_ns: 2_115_840 };
        assert_eq!(far.admit(0, &packet, packet.whole()), Some(sent));
    }

    #[test]
    fn the_queue_drops_its_tail_and_counts_it() {
        let mut link = Link::new(LINK, 0);
        let packet = full();
        let taken = (0..12).filter(|_| link.admit(0, &packet, packet.whole()).is_some()).count();
        assert_eq!(taken, 10);
        let passage = link.passage;
        assert_eq!((passage.packets, passage.bytes), (10, 15_380));
        assert_eq!((passage.dropped_packets, passage.dropped_bytes), (2, 2 * 1538));
        assert_eq!((passage.max_queue_bytes, passage.lost_packets), (15_380, 0));
        assert!(link.admit(115_841, &packet, packet.whole()).is_some(), "one has left, one fits");
    }

    #[test]
    fn an_idle_link_takes_a_packet_larger_than_its_queue() {
        let mut link = Link::new(LinkSpec { queue_bytes: 100, ..LINK }, 0);
        let packet = full();
        assert!(link.admit(0, &packet, packet.whole()).is_some());
        assert!(link.admit(0, &packet, packet.whole()).is_none());
    }

    #[test]
    fn the_default_queue_holds_large_probes_and_a_round_trip() {
        assert_eq!(default_queue_bytes(10.0, 0.4), 131_072);
        assert!(default_queue_bytes(10.0, 0.4) > 2 * 52_292);
        let bdp = 1000e6 * WIRE_PER_GOODPUT / 8.0 * 0.018;
        let queue = default_queue_bytes(1000.0, 18.0) as f64;
        assert!(queue > bdp && queue < 1.3 * bdp);
    }

    #[test]
    fn loss_is_as_declared_and_the_same_for_a_seed() {
        let losses = |percent, seed| {
            let mut link = Link::new(LinkSpec { loss_percent: percent, ..LINK }, seed);
            (0..100_000).filter(|_| link.loses()).count()
        };
        assert_eq!(losses(0.0, 1), 0);
        assert_eq!(losses(100.0, 1), 100_000);
        assert_eq!(losses(1.0, 1), losses(1.0, 1));
        for seed in 0..20 {
            let lost = losses(1.0, seed) as f64;
            // Five standard deviations of a binomial with n = 100,000 and p = 0.01.
            assert!((lost - 1000.0).abs() < 5.0 * 31.5, "{lost}");
        }
    }
}
