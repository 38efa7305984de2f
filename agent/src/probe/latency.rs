//! How long does a packet take to a peer and back?
//!
//! Open loop: packet *i* leaves at start + *i* x interval whatever became of the ones before, so that a late reply
//! cannot hide what follows it. A sender that was kept from the processor catches up at no less than half the
//! interval, since two large packets in one burst would measure each other.
//!
//! A round trip runs from the moment the kernel hands the (first fragment of the) request to the device until the
//! moment the last fragment of the reply arrives, less the time that the reflector held it. Where the kernel gives
//! no stamps, the process's monotonic clock is read around the calls, and the result says so.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{MsgFlags, TimestampingFlag, send, setsockopt, sockopt};
use nix::sys::time::{TimeSpec, TimeValLike as _};

use super::socket::{control_buffer, realtime_nanos, receive, udp};
use super::stamp::{BASE_BYTES, ERROR_USER, MAX_BYTES, Reply, Request, Timestamp};
use super::{CANCEL_CHECK, Cancelled, ProbeError, bounded_millis};

const MAX_COUNT: u32 = 10_000;
const MIN_INTERVAL_MICROS: u32 = 100;
const MAX_TOTAL: Duration = Duration::from_mins(10);
const MAX_TIMEOUT_MILLIS: u32 = 60_000;
/// A kernel interval lies within the process's own around it; what exceeds it by more was torn by a clock step.
const CLOCK_TOLERANCE: Duration = Duration::from_micros(200);

/// What to send, validated.
#[derive(Debug, Clone)]
pub struct LatencyPlan {
    peer: SocketAddr,
    payload_bytes: usize,
    count: u32,
    interval: Duration,
    timeout: Duration,
}

impl LatencyPlan {
    /// `payload_bytes` of UDP (raised to 44), `count` packets `interval_micros` apart, and `timeout_millis` of
    /// patience after the last.
    pub fn new(
        peer: SocketAddr,
        payload_bytes: u32,
        count: u32,
        interval_micros: u32,
        timeout_millis: u32,
    ) -> Result<Self, ProbeError> {
        let refuse =
            |field, value: u32, bound| Err(ProbeError::Argument { field, value: value.into(), bound });
        if payload_bytes as usize > MAX_BYTES {
            return refuse("payload_bytes", payload_bytes, "at most 65507");
        }
        if !(1..=MAX_COUNT).contains(&count) {
            return refuse("count", count, "1 to 10000");
        }
        if interval_micros < MIN_INTERVAL_MICROS {
            return refuse("interval_micros", interval_micros, "at least 100");
        }
        let interval = Duration::from_micros(interval_micros.into());
        if interval * count > MAX_TOTAL {
            return refuse(
                "interval_micros",
                interval_micros,
                "less: count times interval is over 10 minutes",
            );
        }
        let timeout = bounded_millis("timeout_millis", timeout_millis, MAX_TIMEOUT_MILLIS, "at most 60000")?;
        let payload_bytes = (payload_bytes as usize).max(BASE_BYTES);
        Ok(Self { peer, payload_bytes, count, interval, timeout })
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyResult {
    /// Packets sent.
    pub sent: u32,
    /// Round trips in nanoseconds, in order of sending, the lost left out.
    pub rtt_nanos: Vec<u64>,
    /// Replies to a packet that had one already.
    pub duplicates: u32,
    /// Replies that came after a reply to a later packet (RFC 4737).
    pub reordered: u32,
    /// Whether the figures rest on the kernel's stamps.
    pub kernel_timestamps: bool,
}

/// One packet on its way.
#[derive(Debug, Clone)]
struct Flight {
    left: Instant,
    stamp: Timestamp,
    left_kernel: Option<u64>,
    landed: Option<Landing>,
}

#[derive(Debug, Clone)]
struct Landing {
    at: Instant,
    at_kernel: Option<u64>,
    residence: u64,
}

impl Flight {
    fn rtt_user(&self) -> Option<u64> {
        let landed = self.landed.as_ref()?;
        let elapsed = u64::try_from(landed.at.saturating_duration_since(self.left).as_nanos()).ok()?;
        Some(elapsed.saturating_sub(landed.residence))
    }

    fn rtt_kernel(&self) -> Option<u64> {
        let landed = self.landed.as_ref()?;
        let elapsed = landed.at_kernel?.checked_sub(self.left_kernel?)?;
        let around = landed.at.saturating_duration_since(self.left) + CLOCK_TOLERANCE;
        let plausible = Duration::from_nanos(elapsed) <= around && landed.residence <= elapsed;
        plausible.then(|| elapsed - landed.residence)
    }
}

struct Session<'a> {
    plan: &'a LatencyPlan,
    socket: UdpSocket,
    id: u16,
    packet: Vec<u8>,
    buffer: Vec<u8>,
    control: Vec<u8>,
    flights: Vec<Flight>,
    landed: u32,
    stamped: u32,
    newest: Option<u32>,
    duplicates: u32,
    reordered: u32,
    /// The kernel numbers its stamps by send calls; after a refused call the numbers are not certain any more.
    numbered: bool,
}

/// Measures; takes count x interval, and up to the timeout where packets are lost.
pub(super) fn run(plan: &LatencyPlan, cancelled: &Cancelled) -> Result<LatencyResult, ProbeError> {
    let mut session = Session::open(plan)?;
    let start = Instant::now();
    let mut next_send = start;
    let mut deadline = start;
    loop {
        cancelled.check()?;
        let sent = session.flights.len() as u32;
        let now = Instant::now();
        if sent < plan.count && now >= next_send {
            session.send(sent)?;
            deadline = Instant::now() + plan.timeout;
            next_send = (start + plan.interval * (sent + 1)).max(now + plan.interval / 2);
        } else if sent == plan.count && (session.complete() || now >= deadline) {
            return Ok(session.result());
        } else {
            let until = if sent < plan.count { next_send } else { deadline };
            session.wait(until.saturating_duration_since(now).min(CANCEL_CHECK))?;
        }
        session.drain()?;
    }
}

impl<'a> Session<'a> {
    fn open(plan: &'a LatencyPlan) -> Result<Self, ProbeError> {
        let any =
            if plan.peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = udp(SocketAddr::new(any, 0))?;
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        let numbered = setsockopt(&socket, sockopt::Timestamping, &flags).is_ok();
        socket
            .connect(plan.peer)
            .map_err(|source| ProbeError::system(format!("reach {}", plan.peer), source))?;
        // Tells this session's replies from those to an earlier socket that had the same port.
        let id = (realtime_nanos() >> 10) as u16;
        let mut session = Self {
            plan,
            socket,
            id,
            packet: vec![0; plan.payload_bytes],
            buffer: vec![0; 1 << 16],
            control: control_buffer(),
            flights: Vec::with_capacity(plan.count as usize),
            landed: 0,
            stamped: 0,
            newest: None,
            duplicates: 0,
            reordered: 0,
            numbered,
        };
        let request = session.request(0, Timestamp::from_unix_nanos(0));
        request.write(&mut session.packet);
        Ok(session)
    }

    fn request(&self, sequence: u32, timestamp: Timestamp) -> Request {
        Request { sequence, timestamp, error: ERROR_USER, session: self.id }
    }

    fn send(&mut self, sequence: u32) -> Result<(), ProbeError> {
        let stamp = Timestamp::from_unix_nanos(realtime_nanos());
        self.request(sequence, stamp).stamp(&mut self.packet);
        let left = Instant::now();
        self.flights.push(Flight { left, stamp, left_kernel: None, landed: None });
        match send(self.socket.as_raw_fd(), &self.packet, MsgFlags::MSG_DONTWAIT) {
            Ok(_) => Ok(()),
            // The queue of this host is full: the packet is lost, like one that a router dropped.
            Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::EINTR) => {
                self.numbered = false;
                Ok(())
            }
            Err(errno) => Err(self.unreachable(errno)),
        }
    }

    fn wait(&self, time: Duration) -> Result<(), ProbeError> {
        let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let timeout = TimeSpec::nanoseconds(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
        // ppoll, not poll: milliseconds are too coarse for a schedule.
        match nix::poll::ppoll(&mut ready, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(ProbeError::system("wait for replies", errno)),
        }
    }

    /// Takes all replies and stamps that are there.
    fn drain(&mut self) -> Result<(), ProbeError> {
        let fd = self.socket.as_raw_fd();
        for queue in [MsgFlags::empty(), MsgFlags::MSG_ERRQUEUE] {
            // Bounded, so that a flood cannot hold up the schedule.
            for _ in 0..64 {
                match receive(fd, &mut self.buffer, &mut self.control, queue) {
                    Ok(datagram) if queue.is_empty() => {
                        let at = Instant::now();
                        self.land(datagram.bytes, at, datagram.kernel_nanos);
                    }
                    Ok(datagram) => self.departed(datagram.transmitted, datagram.kernel_nanos),
                    Err(Errno::EAGAIN) => break,
                    Err(Errno::EINTR) => {}
                    Err(errno) => return Err(self.unreachable(errno)),
                }
            }
        }
        Ok(())
    }

    fn departed(&mut self, number: Option<u32>, stamp: Option<u64>) {
        let flight = number.and_then(|number| self.flights.get_mut(number as usize));
        if let (Some(flight), Some(stamp)) = (flight, stamp)
            && flight.left_kernel.replace(stamp).is_none()
        {
            self.stamped += 1;
        }
    }

    fn land(&mut self, bytes: usize, at: Instant, at_kernel: Option<u64>) {
        let Some(packet) = self.buffer.get(..bytes) else { return };
        let Ok(reply) = Reply::parse(packet) else { return };
        let sequence = reply.request.sequence;
        let Some(flight) = self.flights.get_mut(sequence as usize) else { return };
        let ours = bytes == self.plan.payload_bytes
            && reply.request.session == self.id
            && reply.request.timestamp == flight.stamp;
        if !ours {
            return;
        }
        if flight.landed.is_some() {
            self.duplicates += 1;
            return;
        }
        flight.landed = Some(Landing { at, at_kernel, residence: reply.residence_nanos() });
        self.landed += 1;
        if self.newest.is_some_and(|newest| sequence < newest) {
            self.reordered += 1;
        } else {
            self.newest = Some(sequence);
        }
    }

    fn complete(&self) -> bool {
        self.landed == self.plan.count && (!self.numbered || self.stamped == self.plan.count)
    }

    /// All figures by one clock: a mixture would look like jitter.
    fn result(&self) -> LatencyResult {
        let landed = || self.flights.iter().filter(|flight| flight.landed.is_some());
        let kernel: Option<Vec<u64>> =
            if self.numbered { landed().map(Flight::rtt_kernel).collect() } else { None };
        let kernel_timestamps = kernel.is_some();
        LatencyResult {
            sent: self.flights.len() as u32,
            rtt_nanos: kernel.unwrap_or_else(|| landed().filter_map(Flight::rtt_user).collect()),
            duplicates: self.duplicates,
            reordered: self.reordered,
            kernel_timestamps,
        }
    }

    fn unreachable(&self, errno: Errno) -> ProbeError {
        match errno {
            Errno::ECONNREFUSED => ProbeError::NoReflector { peer: self.plan.peer },
            _ => ProbeError::system(format!("exchange probes with {}", self.plan.peer), errno),
        }
    }
}
