//! How much arrives?
//!
//! The receiving side of a bandwidth probe. A fellow agent announces a probe over gRPC ([`Sink::expect`]) and gets a
//! token of 32 random bytes that opens exactly the announced number of connections, once, within ten seconds. On
//! each connection:
//!
//! ```text
//! sender -> sink   "GCPROBE1", token            40 bytes
//! sink -> sender   'G'                          when all connections are there: all start together
//! sender -> sink   payload until it hears the result
//! sink -> sender   'R', bytes u64, nanos u64,   big-endian, of all connections together, on each
//!                  bits per second u64
//! sender -> sink   reset, so that whatever is still queued at the sender is not carried
//! ```
//!
//! The clock is the sink's and starts with 'G': what arrives in the first `omit` is not counted. So a deep queue on
//! the way cannot prolong a measurement. The rate is the median of [`SLICES`] parts of the window: after a loss the
//! kernel holds back what came behind the gap and hands it over at once, which is not what the way carries.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridcast_proto::v1::ExpectRequest;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use super::{ProbeError, bounded_millis};
use crate::bind;
use crate::namespace::Namespace;

pub(super) const MAGIC: &[u8; 8] = b"GCPROBE1";
pub(super) const TOKEN_BYTES: usize = 32;
pub(super) const GO: u8 = b'G';
pub(super) const RESULT: u8 = b'R';
pub(super) const RESULT_BYTES: usize = 25;
/// Parts of the window whose rates are compared.
const SLICES: u32 = 8;

/// Parallel streams of one probe; sixteen fill any path whose buffers may not be raised.
pub(super) const MAX_STREAMS: u32 = 16;
const MAX_DURATION_MILLIS: u32 = 60_000;
const MAX_OMIT_MILLIS: u32 = 30_000;
/// Probes announced or running at once. One is usual; a controller that asks for more overlapping ones than this
/// measures nothing but this host.
const MAX_PROBES: usize = 4;
/// Connections that have not shown their token yet.
const MAX_STRANGERS: usize = 32;
const TOKEN_LIFETIME: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the sink waits for the sender's reset, which shows that the result was read.
const FAREWELL: Duration = Duration::from_secs(2);
/// Bytes taken from a connection at once. They are discarded in the kernel, so the buffer is never touched.
const READ_BYTES: usize = 1 << 20;

type Token = [u8; TOKEN_BYTES];

/// What an announced probe is to be, validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SinkOrder {
    pub(super) streams: u32,
    pub(super) omit: Duration,
    pub(super) duration: Duration,
}

impl SinkOrder {
    /// `streams` (0 = 1) of at most 16; times in milliseconds.
    pub fn new(streams: u32, omit_millis: u32, duration_millis: u32) -> Result<Self, ProbeError> {
        let streams = streams.max(1);
        if streams > MAX_STREAMS {
            return Err(ProbeError::Argument { field: "streams", value: streams.into(), bound: "1 to 16" });
        }
        if duration_millis == 0 {
            return Err(ProbeError::Argument { field: "duration_millis", value: 0, bound: "1 to 60000" });
        }
        let duration = bounded_millis("duration_millis", duration_millis, MAX_DURATION_MILLIS, "1 to 60000")?;
        let omit = bounded_millis("omit_millis", omit_millis, MAX_OMIT_MILLIS, "at most 30000")?;
        Ok(Self { streams, omit, duration })
    }

    /// How it is announced to the agent whose node, or pod of this UID, receives.
    pub fn announcement(&self, pod: &str) -> ExpectRequest {
        ExpectRequest {
            streams: self.streams,
            omit_millis: self.omit.as_millis() as u32,
            duration_millis: self.duration.as_millis() as u32,
            pod: pod.to_owned(),
        }
    }
}

/// What a sink told the sender over gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// Where to connect.
    pub address: SocketAddr,
    /// What to show.
    pub token: Token,
}

struct Expected {
    order: SinkOrder,
    until: Instant,
    joined: Vec<TcpStream>,
    slot: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Table(Mutex<HashMap<Token, Expected>>);

impl Table {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Token, Expected>> {
        // No code panics while it holds the lock, and each entry is whole at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, token: Token, expected: Expected) {
        self.lock().insert(token, expected);
    }

    fn expire(&self, now: Instant) {
        self.lock().retain(|_, expected| expected.until > now);
    }

    /// Admits one connection; returns the probe when it was the last that was missing. The token is spent then.
    fn join(&self, token: &Token, stream: TcpStream, now: Instant) -> Option<Expected> {
        let mut table = self.lock();
        let expected = table.get_mut(token).filter(|expected| expected.until > now)?;
        expected.joined.push(stream);
        let complete = expected.joined.len() == expected.order.streams as usize;
        if complete { table.remove(token) } else { None }
    }
}

/// The listener of the probe port. Ends when dropped; a probe that counts at that moment counts to its end.
pub struct Sink {
    port: u16,
    table: Arc<Table>,
    slots: Arc<Semaphore>,
    accepting: JoinHandle<()>,
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Sink {
    /// Listens at `listen` of `namespace`; needs a runtime.
    pub async fn bind(namespace: &Namespace, listen: SocketAddr) -> Result<Self, ProbeError> {
        let failed =
            |source| ProbeError::system(format!("listen at TCP {listen} for bandwidth probes"), source);
        let listener = namespace.run(move || bind::tcp(listen)).await.flatten().map_err(failed)?;
        let listener = TcpListener::from_std(listener).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let table = Arc::new(Table::default());
        let accepting = tokio::spawn(accept(listener, Arc::clone(&table)));
        Ok(Self { port, table, slots: Arc::new(Semaphore::new(MAX_PROBES)), accepting })
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Admits one probe; the token is valid for ten seconds.
    pub fn expect(&self, order: SinkOrder) -> Result<Token, ProbeError> {
        let slot = Arc::clone(&self.slots)
            .try_acquire_owned()
            .map_err(|_| ProbeError::Busy { waiting: MAX_PROBES })?;
        let mut token = [0; TOKEN_BYTES];
        random(&mut token)?;
        let until = Instant::now() + TOKEN_LIFETIME;
        self.table.insert(token, Expected { order, until, joined: Vec::new(), slot });
        let table = Arc::clone(&self.table);
        tokio::spawn(async move {
            tokio::time::sleep(TOKEN_LIFETIME).await;
            table.expire(Instant::now());
        });
        Ok(token)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn random(bytes: &mut [u8]) -> Result<(), ProbeError> {
    use std::io::Read as _;
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(bytes))
        .map_err(|source| ProbeError::system("read /dev/urandom for a token", source))
}

async fn accept(listener: TcpListener, table: Arc<Table>) {
    let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
    loop {
        let Ok(permit) = Arc::clone(&strangers).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let table = Arc::clone(&table);
                tokio::spawn(async move {
                    if let Err(error) = admit(stream, &table).await {
                        tracing::debug!(%peer, %error, "a connection to the probe port was refused");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                // Out of descriptors, mostly: they come back when a probe ends.
                tracing::warn!(%error, "cannot accept a connection on the probe port");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Reads the token and hands the connection over; the connection closes with an error otherwise.
async fn admit(mut stream: tokio::net::TcpStream, table: &Table) -> io::Result<()> {
    let mut header = [0; MAGIC.len() + TOKEN_BYTES];
    tokio::time::timeout(HANDSHAKE_TIMEOUT, stream.read_exact(&mut header)).await??;
    let (magic, shown) = header.split_at(MAGIC.len());
    let token: Token = shown.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    if magic != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a bandwidth probe"));
    }
    stream.set_nodelay(true)?;
    let Some(expected) = table.join(&token, stream.into_std()?, Instant::now()) else { return Ok(()) };
    std::thread::Builder::new().name("probe-sink".to_owned()).spawn(move || {
        let Expected { order, joined, slot, .. } = expected;
        if let Err(error) = count(order, joined) {
            tracing::warn!(%error, "a bandwidth probe ended without a result");
        }
        drop(slot);
    })?;
    Ok(())
}

/// Counts until the time is over and tells the sender.
fn count(order: SinkOrder, mut streams: Vec<TcpStream>) -> io::Result<()> {
    for stream in &mut streams {
        stream.write_all(&[GO])?;
    }
    let mut tally = Tally::new(Instant::now(), order);
    let mut buffer = vec![0; READ_BYTES];
    while !tally.over() {
        for index in readable(&streams, tally.until_boundary())? {
            match recv(streams[index].as_raw_fd(), &mut buffer, MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT)
            {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the sender went away")),
                Ok(bytes) => tally.add(Instant::now(), bytes as u64),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        tally.add(Instant::now(), 0);
    }
    let (bytes, elapsed) = tally.result();
    let mut result = [RESULT; RESULT_BYTES];
    result[1..9].copy_from_slice(&bytes.to_be_bytes());
    result[9..17].copy_from_slice(&(elapsed.as_nanos() as u64).to_be_bytes());
    result[17..].copy_from_slice(&tally.bits_per_second().to_be_bytes());
    for stream in &mut streams {
        // A few bytes always fit; a stream that is broken meanwhile is not needed, one result suffices.
        let _ = stream.write_all(&result);
    }
    farewell(&streams);
    Ok(())
}

/// Closing at once would reset the connections, since payload is unread, and a reset may overtake the result.
fn farewell(streams: &[TcpStream]) {
    let end = Instant::now() + FAREWELL;
    let mut open: Vec<&TcpStream> = streams.iter().collect();
    while !open.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        let mut ready: Vec<PollFd<'_>> =
            open.iter().map(|stream| PollFd::new(stream.as_fd(), PollFlags::empty())).collect();
        match poll(&mut ready, timeout(left)) {
            Ok(0) => return,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        let gone: Vec<bool> = ready.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut gone = gone.into_iter();
        open.retain(|_| !gone.next().unwrap_or(true));
        if left.is_zero() {
            return;
        }
    }
}

/// Indices of the connections that have something to read, after at most `wait`.
fn readable(streams: &[TcpStream], wait: Duration) -> io::Result<Vec<usize>> {
    let mut ready: Vec<PollFd<'_>> =
        streams.iter().map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLIN)).collect();
    match poll(&mut ready, timeout(wait)) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let set = ready.iter().enumerate().filter(|(_, fd)| fd.any().unwrap_or(false));
    Ok(set.map(|(index, _)| index).collect())
}

/// Rounded up, so that nobody polls in circles for the last fraction of a millisecond.
pub(super) fn timeout(wait: Duration) -> PollTimeout {
    let millis = wait.as_nanos().div_ceil(1_000_000).min(60_000);
    PollTimeout::try_from(millis as u32).unwrap_or(PollTimeout::MAX)
}

/// Bytes between two moments. Each boundary is the first event at or after the time planned for it, and the rate
/// uses the times at which the bytes were really read.
#[derive(Debug)]
struct Tally {
    order: SinkOrder,
    /// When the next part begins; at first, when the window does.
    boundary: Instant,
    now: Instant,
    total: u64,
    /// The first event of each part, and of what comes after the last, with the bytes until then.
    marks: Vec<(Instant, u64)>,
}

impl Tally {
    fn new(start: Instant, order: SinkOrder) -> Self {
        Self { order, boundary: start + order.omit, now: start, total: 0, marks: Vec::new() }
    }

    fn add(&mut self, now: Instant, bytes: u64) {
        if self.over() {
            return;
        }
        self.now = now;
        self.total += bytes;
        if now < self.boundary {
            return;
        }
        self.marks.push((now, self.total));
        // From its real beginning on, the window is as long as asked, even if the first event was late; and where an event
        // is so late that whole parts have passed, they are one.
        let (opened, _) = self.marks[0];
        let part = self.order.duration / SLICES;
        let passed = (now - opened).as_nanos() / part.as_nanos().max(1);
        self.boundary = opened + part * (passed.min(u128::from(SLICES)) as u32 + 1);
    }

    fn over(&self) -> bool {
        match (self.marks.first(), self.marks.last()) {
            (Some((opened, _)), Some((last, _))) => {
                self.marks.len() > 1 && *last >= *opened + self.order.duration / SLICES * SLICES
            }
            _ => false,
        }
    }

    fn until_boundary(&self) -> Duration {
        self.boundary.saturating_duration_since(self.now)
    }

    fn result(&self) -> (u64, Duration) {
        match (self.marks.first(), self.marks.last()) {
            (Some((from, before)), Some((to, after))) => (after - before, *to - *from),
            _ => (0, Duration::ZERO),
        }
    }

    /// The median rate of the parts.
    fn bits_per_second(&self) -> u64 {
        let rate = |pair: &[(Instant, u64)]| {
            let seconds = (pair[1].0 - pair[0].0).as_secs_f64();
            if seconds > 0.0 { (pair[1].1 - pair[0].1) as f64 * 8.0 / seconds } else { 0.0 }
        };
        let mut rates: Vec<f64> = self.marks.windows(2).map(rate).collect();
        rates.sort_by(f64::total_cmp);
        match rates.len() {
            0 => 0,
            odd if odd % 2 == 1 => rates[odd / 2] as u64,
            even => rates[even / 2 - 1].midpoint(rates[even / 2]) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> (TcpStream, TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn expected(streams: u32, until: Instant) -> Expected {
        let slot = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Expected { order: SinkOrder::new(streams, 0, 1).unwrap(), until, joined: Vec::new(), slot }
    }

    #[test]
    fn a_token_opens_the_announced_number_of_connections_and_no_more() {
        let now = Instant::now();
        let table = Table::default();
        table.insert([1; 32], expected(2, now + TOKEN_LIFETIME));
        assert!(table.join(&[2; 32], connection().1, now).is_none(), "a wrong token");
        assert!(table.join(&[1; 32], connection().1, now).is_none(), "one is missing");
        assert_eq!(table.join(&[1; 32], connection().1, now).unwrap().joined.len(), 2);
        assert!(table.join(&[1; 32], connection().1, now).is_none(), "spent");
    }

    #[test]
    fn an_old_token_opens_nothing_and_is_forgotten() {
        let now = Instant::now();
        let table = Table::default();
        table.insert([1; 32], expected(1, now));
        assert!(table.join(&[1; 32], connection().1, now).is_none());
        table.expire(now);
        assert!(table.lock().is_empty());
    }

    #[test]
    fn only_what_arrives_in_the_window_counts() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut tally = Tally::new(start, SinkOrder::new(1, 100, 800).unwrap());
        tally.add(at(50), 7_000);
        assert_eq!(tally.until_boundary(), Duration::from_millis(50));
        tally.add(at(100), 500);
        for part in 1..=7 {
            tally.add(at(100 + 100 * part), 1_000);
            assert!(!tally.over());
        }
        tally.add(at(900), 1_000);
        tally.add(at(1_000), 9_000);
        assert!(tally.over());
        assert_eq!(tally.result(), (8_000, Duration::from_millis(800)));
        assert_eq!(tally.bits_per_second(), 80_000);
    }

    #[test]
    fn what_a_loss_held_back_does_not_raise_the_rate() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut tally = Tally::new(start, SinkOrder::new(1, 0, 800).unwrap());
        tally.add(start, 0);
        // Two parts bring nothing, one brings all of what came before the window too.
        for (part, bytes) in [1_000, 1_000, 0, 0, 9_000, 1_000, 1_000, 1_000].into_iter().enumerate() {
            tally.add(at(100 * (part as u64 + 1)), bytes);
        }
        assert_eq!(tally.bits_per_second(), 80_000);
    }

    #[test]
    fn parts_that_passed_without_an_event_are_one() {
        let start = Instant::now();
        let mut tally = Tally::new(start, SinkOrder::new(1, 0, 800).unwrap());
        tally.add(start, 0);
        tally.add(start + Duration::from_millis(450), 4_500);
        assert_eq!(tally.until_boundary(), Duration::from_millis(50));
        tally.add(start + Duration::from_millis(850), 4_000);
        assert!(tally.over());
        assert_eq!(tally.bits_per_second(), 80_000);
    }

    #[test]
    fn silence_ends_as_well() {
        let start = Instant::now();
        let mut tally = Tally::new(start, SinkOrder::new(1, 0, 10).unwrap());
        tally.add(start, 0);
        tally.add(start + Duration::from_millis(10), 0);
        assert_eq!(tally.result(), (0, Duration::from_millis(10)));
        assert_eq!(tally.bits_per_second(), 0);
    }

    #[test]
    fn orders_out_of_bounds_name_the_field() {
        for (order, field) in [
            (SinkOrder::new(17, 0, 1), "streams"),
            (SinkOrder::new(1, 30_001, 1), "omit_millis"),
            (SinkOrder::new(1, 0, 0), "duration_millis"),
            (SinkOrder::new(1, 0, 60_001), "duration_millis"),
        ] {
            assert!(order.unwrap_err().to_string().starts_with(field));
        }
        assert_eq!(SinkOrder::new(0, 0, 1).unwrap().streams, 1);
    }
}
