//! How much can be sent to a peer?
//!
//! The sending side of the protocol that `sink` describes: 1 to 16 TCP connections with the namespace's own settings
//! (buffers autotuned, congestion control as set), because those are what is to be measured. One thread, payload from
//! one buffer that is filled once; what it holds does not compress, in case the way does.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{setsockopt, sockopt};

use super::sink::{Expectation, GO, MAGIC, RESULT, RESULT_BYTES, SinkOrder, TOKEN_BYTES, timeout};
use super::tcp_info::tcp_info;
use super::{CANCEL_CHECK, Cancelled, LatencyPlan, ProbeError, latency};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after the end of the window the result may come: a lost one is sent again after 200 ms, then 400.
const GRACE: Duration = Duration::from_secs(2);
const PAYLOAD_BYTES: usize = 256 << 10;
/// Writes to one connection before the others have their turn.
const WRITES_IN_A_ROW: usize = 4;

/// What to send, validated.
#[derive(Debug, Clone, Copy)]
pub struct BandwidthPlan {
    order: SinkOrder,
}

impl BandwidthPlan {
    /// As the sink is to count.
    pub fn new(order: SinkOrder) -> Self {
        Self { order }
    }
}

/// What arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct BandwidthResult {
    /// Payload in the measured window.
    pub bytes: u64,
    /// The window as the sink's clock measured it.
    pub elapsed: Duration,
    /// Median rate over the parts of the window, bits per second.
    pub bits_per_second: u64,
    /// Segments sent again, of all connections, slow start included.
    pub retransmits: u64,
    /// Smallest round trip that TCP saw; zero where it saw none.
    pub min_rtt: Duration,
}

impl BandwidthResult {
    /// Payload rate, Mbit/s.
    pub fn mbps(&self) -> f64 {
        self.bits_per_second as f64 / 1e6
    }
}

/// What the sink counted.
#[derive(Clone, Copy)]
struct Counted {
    bytes: u64,
    elapsed: Duration,
    bits_per_second: u64,
}

/// One connection: what has been heard from the sink so far.
struct Lane {
    stream: TcpStream,
    heard: Vec<u8>,
}

impl Lane {
    fn started(&self) -> bool {
        self.heard.first() == Some(&GO)
    }

    fn result(&self) -> Option<Counted> {
        let result = self.heard.get(1..1 + RESULT_BYTES)?;
        (result[0] == RESULT).then_some(())?;
        let number = |at: usize| result.get(at..at + 8)?.try_into().map(u64::from_be_bytes).ok();
        Some(Counted {
            bytes: number(1)?,
            elapsed: Duration::from_nanos(number(9)?),
            bits_per_second: number(17)?,
        })
    }

    /// Takes what the sink said; false when it hung up.
    fn listen(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 1 + RESULT_BYTES];
        let room = buffer.len() - self.heard.len().min(buffer.len());
        match self.stream.read(&mut buffer[..room.max(1)]) {
            Ok(0) => Ok(false),
            Ok(bytes) => {
                self.heard.extend_from_slice(&buffer[..bytes]);
                // One that says more is no sink.
                Ok(self.heard.len() <= 1 + RESULT_BYTES)
            }
            Err(error) if again(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn pour(&mut self, payload: &[u8]) -> io::Result<()> {
        for _ in 0..WRITES_IN_A_ROW {
            match self.stream.write(payload) {
                Ok(_) => {}
                Err(error) if again(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Measures; ends 2 s after omit + duration at the latest, whatever the way is like.
pub(super) fn run(
    plan: &BandwidthPlan,
    expectation: &Expectation,
    cancelled: &Cancelled,
) -> Result<BandwidthResult, ProbeError> {
    let peer = expectation.address;
    let failed = |source| ProbeError::system(format!("send a bandwidth probe to {peer}"), source);
    let mut lanes = Vec::with_capacity(plan.order.streams as usize);
    for _ in 0..plan.order.streams {
        cancelled.check()?;
        lanes.push(connect(expectation)?);
    }
    let mut payload = vec![0; PAYLOAD_BYTES];
    blake3::Hasher::new().update(&expectation.token).finalize_xof().fill(&mut payload);

    let allowed = plan.order.omit + plan.order.duration + GRACE;
    let start = Instant::now();
    let deadline = start + allowed;
    loop {
        cancelled.check()?;
        let now = Instant::now();
        if now >= deadline {
            return Err(ProbeError::NoResult { peer, seconds: allowed.as_secs_f64() });
        }
        for (index, events) in ready(&lanes, (deadline - now).min(CANCEL_CHECK)).map_err(failed)? {
            let lane = &mut lanes[index];
            if events.intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR) {
                let alive = lane.listen().map_err(|error| ended(error, peer))?;
                if let Some(counted) = lane.result() {
                    return Ok(conclude(lanes, peer, counted, cancelled));
                }
                if !alive {
                    return Err(ProbeError::PeerClosed { peer });
                }
            }
            let lane = &mut lanes[index];
            if events.contains(PollFlags::POLLOUT) && lane.started() {
                lane.pour(&payload)
                    .or_else(|error| after_result(lane, error))
                    .map_err(|error| ended(error, peer))?;
                if let Some(counted) = lane.result() {
                    return Ok(conclude(lanes, peer, counted, cancelled));
                }
            }
        }
    }
}

/// The write failed because the sink is done: its result may still wait to be read.
fn after_result(lane: &mut Lane, error: io::Error) -> io::Result<()> {
    match lane.listen() {
        Ok(_) if lane.result().is_some() => Ok(()),
        _ => Err(error),
    }
}

fn ended(error: io::Error, peer: SocketAddr) -> ProbeError {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => ProbeError::PeerClosed { peer },
        _ => ProbeError::system(format!("send a bandwidth probe to {peer}"), error),
    }
}

fn connect(expectation: &Expectation) -> Result<Lane, ProbeError> {
    let peer = expectation.address;
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::ConnectionRefused => ProbeError::NoReflector { peer },
        _ => ProbeError::system(format!("connect to probe port {peer}"), source),
    };
    let mut stream = TcpStream::connect_timeout(&peer, CONNECT_TIMEOUT).map_err(failed)?;
    let mut header = [0; MAGIC.len() + TOKEN_BYTES];
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    header[MAGIC.len()..].copy_from_slice(&expectation.token);
    stream.write_all(&header).map_err(failed)?;
    stream.set_nonblocking(true).map_err(failed)?;
    // Closing resets: the megabytes that wait in the send buffer are not carried for nothing.
    let reset = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&stream, sockopt::Linger, &reset).map_err(|errno| failed(errno.into()))?;
    Ok(Lane { stream, heard: Vec::with_capacity(1 + RESULT_BYTES) })
}

/// Connections with something to do, after at most `wait`. Before the start only the sink may speak.
fn ready(lanes: &[Lane], wait: Duration) -> io::Result<Vec<(usize, PollFlags)>> {
    let mut fds: Vec<PollFd<'_>> = lanes
        .iter()
        .map(|lane| {
            let write = if lane.started() { PollFlags::POLLOUT } else { PollFlags::empty() };
            PollFd::new(lane.stream.as_fd(), PollFlags::POLLIN | write)
        })
        .collect();
    match poll(&mut fds, timeout(wait)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let events = fds.iter().enumerate().filter_map(|(index, fd)| Some((index, fd.revents()?)));
    Ok(events.filter(|(_, events)| !events.is_empty()).collect())
}

fn conclude(lanes: Vec<Lane>, peer: SocketAddr, counted: Counted, cancelled: &Cancelled) -> BandwidthResult {
    let infos: Vec<_> = lanes.iter().filter_map(|lane| tcp_info(lane.stream.as_fd()).ok()).collect();
    let min_rtt = infos.iter().filter_map(|info| info.min_rtt_micros).min().unwrap_or(0);
    drop(lanes);
    settle(peer, cancelled);
    let Counted { bytes, elapsed, bits_per_second } = counted;
    BandwidthResult {
        bytes,
        elapsed,
        bits_per_second,
        retransmits: infos.iter().map(|info| u64::from(info.retransmits)).sum(),
        min_rtt: Duration::from_micros(min_rtt.into()),
    }
}

/// Waits until a packet that leaves now is back: queues are first in, first out, so what this measurement left in
/// them is through then, and the next one does not measure it. A packet that the full queue drops means waiting for
/// as long as a deep queue needs.
fn settle(peer: SocketAddr, cancelled: &Cancelled) {
    let millis = GRACE.as_millis() as u32;
    if let Ok(plan) = LatencyPlan::new(peer, 0, 1, 1_000, millis) {
        // The figures are complete; how the queue fared does not change them.
        let _ = latency::run(&plan, cancelled);
    }
}
