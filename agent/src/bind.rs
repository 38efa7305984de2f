//! How does one port hear both families of addresses?
//!
//! A socket at `[::]` hears IPv4 as well. `net.ipv6.bindv6only` would make it deaf to that, and is overruled. Where the
//! kernel has no IPv6 there is no such address, and `0.0.0.0` is what is meant.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt, socket, sockopt,
};

/// All addresses of both families, at `port`.
pub(crate) const fn everywhere(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)
}

/// A TCP listener that does not block.
pub(crate) fn tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let open = |address| {
        let socket = open(address, SockType::Stream, SockFlag::SOCK_NONBLOCK)?;
        // What an agent that has ended was connected with does not keep its port.
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        listen(&socket, Backlog::MAXALLOWABLE)?;
        Ok(socket.into())
    };
    Ok(either(address, open)?)
}

/// A UDP socket that blocks. `prepare` sees it before it hears anything.
pub(crate) fn udp(
    address: SocketAddr,
    prepare: impl Fn(&OwnedFd) -> Result<(), Errno>,
) -> Result<UdpSocket, Errno> {
    either(address, |address| {
        let socket = open(address, SockType::Datagram, SockFlag::empty())?;
        prepare(&socket)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(address))?;
        Ok(socket.into())
    })
}

/// `open` at `address`, or at all addresses of the older family where all of both are meant and there is only one.
fn either<T>(address: SocketAddr, open: impl Fn(SocketAddr) -> Result<T, Errno>) -> Result<T, Errno> {
    match open(address) {
        Err(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL) if address == everywhere(address.port()) => {
            open(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
        }
        opened => opened,
    }
}

fn open(address: SocketAddr, kind: SockType, flags: SockFlag) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let socket = socket(family, kind, flags | SockFlag::SOCK_CLOEXEC, None)?;
    if address.is_ipv6() {
        setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// Runs `test` in a network namespace of its own that has a loopback interface and settings as a test likes them.
    fn in_a_namespace(test: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(|| {
            use nix::sched::{CloneFlags, unshare};
            unshare(CloneFlags::CLONE_NEWNET).expect("tests run as root");
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.is_ok_and(|status| status.success()), "ip link set lo up");
            test();
        });
        thread.join().unwrap();
    }

    /// Sets what is the calling thread's network namespace's own.
    fn set(setting: &str, value: &str) {
        std::fs::write(format!("/proc/sys/net/ipv6/{setting}"), value).unwrap();
    }

    fn hears(port: u16, host: &str) -> bool {
        TcpStream::connect_timeout(&format!("{host}:{port}").parse().unwrap(), Duration::from_secs(5)).is_ok()
    }

    fn answers(socket: &UdpSocket, host: &str) -> bool {
        let port = socket.local_addr().unwrap().port();
        let client = UdpSocket::bind(if host.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" }).unwrap();
        client.send_to(b"?", format!("{host}:{port}")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.recv(&mut [0; 8]).is_ok()
    }

    #[test]
    fn both_families_are_heard_whatever_the_system_prefers() {
        in_a_namespace(|| {
            for only_v6 in ["0", "1"] {
                set("bindv6only", only_v6);
                let listener = tcp(everywhere(0)).unwrap();
                let port = listener.local_addr().unwrap().port();
                assert!(hears(port, "127.0.0.1") && hears(port, "[::1]"), "bindv6only {only_v6}");
                let socket = udp(everywhere(0), |_| Ok(())).unwrap();
                assert!(answers(&socket, "127.0.0.1") && answers(&socket, "[::1]"), "bindv6only {only_v6}");
            }
        });
    }

    #[test]
    fn where_ipv6_is_switched_off_the_older_one_is_heard() {
        in_a_namespace(|| {
            set("conf/all/disable_ipv6", "1");
            let listener = tcp(everywhere(0)).unwrap();
            assert!(hears(listener.local_addr().unwrap().port(), "127.0.0.1"));
            assert!(answers(&udp(everywhere(0), |_| Ok(())).unwrap(), "127.0.0.1"));
        });
    }

    #[test]
    fn a_kernel_without_ipv6_listens_to_what_it_has() {
        for missing in [Errno::EAFNOSUPPORT, Errno::EADDRNOTAVAIL] {
            let without = |address: SocketAddr| if address.is_ipv6() { Err(missing) } else { Ok(address) };
            assert_eq!(either(everywhere(7411), without), Ok("0.0.0.0:7411".parse().unwrap()));
            // One address of many was meant.
            assert_eq!(either("[fd00::1]:7411".parse().unwrap(), without), Err(missing));
        }
        let taken = |_| Err::<(), _>(Errno::EADDRINUSE);
        assert_eq!(either(everywhere(7411), taken), Err(Errno::EADDRINUSE));
    }

    #[test]
    fn one_family_stays_one() {
        let port = tcp("127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap().port();
        assert!(!hears(port, "[::1]"));
    }
}
