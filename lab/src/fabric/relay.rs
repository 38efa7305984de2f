//! When does the fabric read, wait and write?

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;

use super::control::Control;
use super::engine::{Delivery, Engine};
use super::packet::MAX_BYTES;
use super::{Counters, FabricError, FabricSpec, Lateness, ports};
use crate::os::process::realtime;

/// Packets that are read from one interface before the others get their turn.
const BATCH: usize = 64;
/// Descriptors that are watched before those of the ports: signals, lifetime, control.
const OWN_FDS: usize = 3;

/// Runs a fabric in this process until its standard input ends or SIGTERM comes, and returns what it counted.
/// `directory` gets its socket and its last counters; see [`counters`](super::counters). `ready` is called when all
/// interfaces are up. Blocks; call it in a process of its own, before it has threads: it blocks SIGTERM and asks
/// for a realtime class.
pub fn run(spec: &FabricSpec, directory: &Path, ready: impl FnOnce()) -> Result<Counters, FabricError> {
    let mut relay = Relay::new(spec)?;
    let mut control = Control::open(directory)
        .map_err(FabricError::machine(format!("listen in {}", directory.display())))?;
    let term = SigSet::from(Signal::SIGTERM);
    let signals = term
        .thread_block()
        .and_then(|()| SignalFd::with_flags(&term, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK));
    let signals = signals.map_err(|error| FabricError::machine("watch for SIGTERM")(error.into()))?;
    // Both make it precise on a busy machine; where they are not permitted it is less so, and lateness tells.
    if let Err(error) = prctl::set_timerslack(1) {
        tracing::info!(%error, "timers are not exact");
    }
    if let Err(error) = realtime() {
        tracing::info!(%error, "the fabric has no realtime class");
    }
    ready();
    let ended = relay.until_ended(&signals, &mut control);
    let counters = relay.counters();
    ended.map_err(FabricError::machine("move packets"))?;
    control.close(&counters).map_err(FabricError::machine("leave the counters"))?;
    Ok(counters)
}

struct Relay {
    engine: Engine,
    /// By port; none where the node has ended, and its interface with it.
    tuns: Vec<Option<File>>,
    began: Instant,
    lateness: Lateness,
    buffer: Box<[u8]>,
}

impl Relay {
    fn new(spec: &FabricSpec) -> Result<Self, FabricError> {
        let engine = Engine::new(spec)?;
        let tuns = spec.ports.iter().map(|port| ports::open(port).map(Some)).collect::<Result<_, _>>()?;
        let buffer = vec![0; MAX_BYTES].into_boxed_slice();
        Ok(Self { engine, tuns, began: Instant::now(), lateness: Lateness::default(), buffer })
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn counters(&self) -> Counters {
        Counters {
            seconds: self.began.elapsed().as_secs_f64(),
            lateness: self.lateness,
            ..self.engine.counters()
        }
    }

    fn until_ended(&mut self, signals: &SignalFd, control: &mut Control) -> io::Result<()> {
        let lifetime = io::stdin();
        let mut readable = Vec::with_capacity(self.tuns.len());
        loop {
            let present: Vec<usize> =
                (0..self.tuns.len()).filter(|&port| self.tuns[port].is_some()).collect();
            let own = [signals.as_fd(), lifetime.as_fd(), control.fd()];
            let mut fds: Vec<PollFd<'_>> =
                own.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            fds.extend(self.tuns.iter().flatten().map(|tun| PollFd::new(tun.as_fd(), PollFlags::POLLIN)));
            match ppoll(&mut fds, self.wait(), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let happened = |fd: &PollFd<'_>| fd.any() == Some(true);
            if fds[..2].iter().any(happened) {
                return Ok(());
            }
            let asked = happened(&fds[2]);
            readable.clear();
            readable.extend(
                present.iter().zip(&fds[OWN_FDS..]).filter(|(_, fd)| happened(fd)).map(|(&port, _)| port),
            );
            if asked {
                control.answer(|| self.counters())?;
            }
            // What has come to switches meanwhile came before what is read now.
            self.deliver();
            for &port in &readable {
                self.read(port)?;
            }
        }
    }

    /// Time until the next event; none to wait for packets only, which is what an idle fabric does.
    fn wait(&self) -> Option<TimeSpec> {
        let due = self.engine.due_ns()?;
        Some(TimeSpec::from_duration(Duration::from_nanos(due.saturating_sub(self.now_ns()))))
    }

    fn read(&mut self, port: usize) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some(mut tun) = self.tuns[port].as_ref() else { break };
            match tun.read(&mut self.buffer) {
                Ok(length) => {
                    let now = self.now_ns();
                    self.engine.send(port, &self.buffer[..length], now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The node has ended; the others go on. Its descriptor would be ready for ever.
                Err(error) if error.raw_os_error() == Some(libc::EBADFD) => self.tuns[port] = None,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands over all that is due.
    fn deliver(&mut self) {
        let mut done = Vec::new();
        let (tuns, lateness, began) = (&self.tuns, &mut self.lateness, self.began);
        let now = began.elapsed().as_nanos() as u64;
        self.engine.advance(now, &mut |delivery| {
            let accepted = tuns[delivery.port].as_ref().is_some_and(|tun| write(tun, &delivery));
            lateness.record(now.saturating_sub(delivery.due_ns));
            done.push((delivery.port, accepted));
        });
        for (port, accepted) in done {
            self.engine.delivered(port, accepted);
        }
    }
}

/// Whether the interface took it. It does not where the node has set it down.
fn write(mut tun: &File, delivery: &Delivery<'_>) -> bool {
    let Delivery { packet, window, .. } = delivery;
    let written = match packet.part(*window) {
        None => tun.write(packet.bytes()),
        Some(part) => tun.write_vectored(&[IoSlice::new(part.headers()), IoSlice::new(part.payload(packet))]),
    };
    written.is_ok()
}
