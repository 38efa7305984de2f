//! Who answers the probes of peers?

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{MsgFlags, SockaddrLike as _, SockaddrStorage, sendmsg, setsockopt, sockopt};

use super::ProbeError;
use super::socket::{Datagram, Destination, control_buffer, realtime_nanos, receive, udp};
use super::stamp::{ERROR_KERNEL, ERROR_USER, Reply, Request, Timestamp};
use crate::namespace::Namespace;

/// Failures in a row after which the socket is given up; a transient error never reaches it.
const MAX_FAILURES: u32 = 1_000;

/// The STAMP Session-Reflector: a thread that sleeps until a packet comes. Stateless, so it needs no bound on
/// sessions. Ends when dropped.
#[derive(Debug)]
pub struct Reflector {
    address: SocketAddr,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Reflector {
    /// Binds `listen` of `namespace` and starts to answer.
    pub async fn start(namespace: &Namespace, listen: SocketAddr) -> Result<Self, ProbeError> {
        let opened = namespace.run(move || udp(listen)).await;
        let socket = opened.map_err(|source| ProbeError::system("enter the network namespace", source))??;
        Self::serve_on(socket, listen)
    }

    fn serve_on(socket: UdpSocket, listen: SocketAddr) -> Result<Self, ProbeError> {
        let failed = |errno: Errno| ProbeError::system(format!("prepare UDP {listen}"), errno);
        // Without kernel stamps the answer carries the process's own, and says so in its error estimate.
        let _ = setsockopt(&socket, sockopt::ReceiveTimestampns, &true);
        let address =
            socket.local_addr().map_err(|source| ProbeError::system(format!("bind UDP {listen}"), source))?;
        // A socket of IPv6 hears IPv4, too.
        setsockopt(&socket, sockopt::Ipv4RecvTtl, &true).map_err(failed)?;
        if address.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true).map_err(failed)?;
        } else {
            setsockopt(&socket, sockopt::Ipv6RecvHopLimit, &true).map_err(failed)?;
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true).map_err(failed)?;
        }
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(failed)?;
        let stop = Arc::new(stop);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("reflector".to_owned())
            .spawn(move || {
                if let Err(error) = serve(&socket, &stopped) {
                    tracing::error!(%address, %error, "the reflector ended: peers cannot measure this node");
                }
            })
            .map_err(|source| ProbeError::system("start the reflector's thread", source))?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        // Writing to an eventfd fails only when its counter is full, and then the thread is awake already.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: &UdpSocket, stop: &EventFd) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut control = control_buffer();
    let mut failures = 0;
    loop {
        let mut ready =
            [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        if ready[1].any().unwrap_or(false) {
            return Ok(());
        }
        match receive(socket.as_raw_fd(), &mut buffer, &mut control, MsgFlags::empty()) {
            Ok(datagram) => {
                failures = 0;
                answer(socket, &mut buffer[..], &datagram);
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => {
                failures += 1;
                if failures >= MAX_FAILURES {
                    return Err(errno.into());
                }
            }
        }
    }
}

/// Sends the reply, or nothing: a reflector that cannot answer leaves a loss for the sender to count.
fn answer(socket: &UdpSocket, buffer: &mut [u8], datagram: &Datagram) {
    let Some(packet) = buffer.get_mut(..datagram.bytes) else { return };
    let Ok(request) = Request::parse(packet) else { return };
    let Some(from) = datagram.from.filter(|from| from.family().is_some() && port(from) != 0) else { return };
    let now = realtime_nanos();
    // A stamp later than now: the clock was set back between the two.
    let kernel = datagram.kernel_nanos.filter(|stamp| *stamp <= now);
    let reply = Reply {
        request,
        received: Timestamp::from_unix_nanos(kernel.unwrap_or(now)),
        ttl: datagram.ttl,
        sent: Timestamp::from_unix_nanos(now),
        error: if kernel.is_some() { ERROR_KERNEL } else { ERROR_USER },
    };
    reply.write(packet);
    // From the address that was asked: the sender's connected socket hears no other.
    let control: Vec<_> = datagram.local.iter().map(Destination::as_source).collect();
    let _ = sendmsg(
        socket.as_raw_fd(),
        &[io::IoSlice::new(packet)],
        &control,
        MsgFlags::MSG_DONTWAIT,
        Some(&from),
    );
}

fn port(address: &SockaddrStorage) -> u16 {
    let v4 = address.as_sockaddr_in().map(nix::sys::socket::SockaddrIn::port);
    v4.or_else(|| address.as_sockaddr_in6().map(nix::sys::socket::SockaddrIn6::port)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::Duration;

    use super::*;
    use crate::bind::everywhere;

    fn start() -> Reflector {
        let listen = everywhere(0);
        Reflector::serve_on(udp(listen).unwrap(), listen).unwrap()
    }

    fn ask(reflector: &Reflector, host: IpAddr, packet: &[u8]) -> Option<Vec<u8>> {
        let own = if host.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
        let socket = UdpSocket::bind(own).unwrap();
        // Hears what comes from the address that was asked, and nothing else.
        socket.connect((host, reflector.address().port())).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.send(packet).unwrap();
        let mut follow_up = [0; 44];
        let probe = Request {
            sequence: u32::MAX,
            timestamp: Timestamp::from_unix_nanos(1),
            error: ERROR_USER,
            session: 1,
        };
        probe.write(&mut follow_up);
        // The reflector answers in order: whoever hears the follow-up first knows that the packet was dropped.
        socket.send(&follow_up).unwrap();
        let mut reply = vec![0; 1 << 16];
        let length = socket.recv(&mut reply).unwrap();
        reply.truncate(length);
        let dropped = Reply::parse(&reply).is_ok_and(|reply| reply.request.sequence == u32::MAX);
        (!dropped).then_some(reply)
    }

    #[test]
    fn answers_with_as_many_bytes_as_it_was_asked() {
        let reflector = start();
        // One of them is not the address that the system would reply from.
        let hosts = ["127.0.0.1", "127.0.0.2", "::1"].map(|host| host.parse::<IpAddr>().unwrap());
        for (length, host) in [44, 45, 64, 1472, 50_000, 65_507].into_iter().zip(hosts.into_iter().cycle()) {
            let sent = Timestamp::from_unix_nanos(1_000);
            let request = Request { sequence: 7, timestamp: sent, error: ERROR_USER, session: 9 };
            let mut packet = vec![0; length];
            request.write(&mut packet);
            let reply = ask(&reflector, host, &packet).unwrap();
            assert_eq!(reply.len(), length);
            let reply = Reply::parse(&reply).unwrap();
            assert_eq!(reply.request, request);
            assert!(reply.ttl > 0);
            assert_eq!(reply.error, ERROR_KERNEL);
        }
    }

    #[test]
    fn is_silent_to_what_is_no_request() {
        let reflector = start();
        for packet in [b"who are you?".as_slice(), &[0; 64], &[0xFF; 64]] {
            assert_eq!(ask(&reflector, Ipv4Addr::LOCALHOST.into(), packet), None);
        }
    }
}
