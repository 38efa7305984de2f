//! Traffic between nodes: a TCP stream whose rate is taken at the receiver, and UDP datagrams.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use gridcast_lab::node::{connect, in_network};
use nix::sys::socket::{setsockopt, sockopt::TcpCongestion};

/// A node as traffic sees it.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub pid: i32,
    pub address: Ipv4Addr,
}

/// Goodput from one node to another, Mbit/s, over `window` after `warm_up`.
pub fn goodput_mbps(
    from: End,
    to: End,
    congestion: Option<&str>,
    warm_up: Duration,
    window: Duration,
) -> io::Result<f64> {
    let listener = in_network(to.pid, || TcpListener::bind((to.address, 0)))?;
    let sender = connect(from.pid, listener.local_addr()?, Duration::from_secs(5))?;
    if let Some(name) = congestion {
        setsockopt(&sender, TcpCongestion, &name.into())?;
    }
    let (receiver, _) = listener.accept()?;
    thread::scope(|scope| {
        scope.spawn(|| send_until_closed(sender));
        receive(receiver, warm_up, window)
    })
}

fn send_until_closed(mut stream: TcpStream) {
    let block = vec![0x5a; 128 << 10];
    while stream.write_all(&block).is_ok() {}
}

fn receive(mut stream: TcpStream, warm_up: Duration, window: Duration) -> io::Result<f64> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut block = vec![0; 256 << 10];
    let began = Instant::now();
    let mut receive_for = |time: Duration, began: Instant| {
        let mut bytes = 0;
        while began.elapsed() < time {
            bytes += stream.read(&mut block)?;
        }
        io::Result::Ok(bytes)
    };
    receive_for(warm_up, began)?;
    let began = Instant::now();
    let bytes = receive_for(window, began)?;
    Ok(bytes as f64 * 8.0 / 1e6 / began.elapsed().as_secs_f64())
}

/// A UDP socket in a node.
pub fn udp(end: End, port: u16) -> UdpSocket {
    udp_on(end, SocketAddr::from((end.address, port)))
}

/// A UDP socket in a node, on any of its addresses.
pub fn udp_on(end: End, address: SocketAddr) -> UdpSocket {
    let socket = in_network(end.pid, || UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Round-trip times of `count` datagrams of `bytes` bytes, milliseconds.
pub fn rtts_ms(from: End, to: End, bytes: usize, count: usize) -> Vec<f64> {
    let (asker, answerer) = (udp(from, 0), udp(to, 0));
    let target = answerer.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut data = vec![0; 65_536];
            for _ in 0..count {
                let Ok((length, peer)) = answerer.recv_from(&mut data) else { return };
                answerer.send_to(&data[..length], peer).unwrap();
            }
        });
        let mut data = vec![0; bytes];
        let once = || {
            let began = Instant::now();
            asker.send_to(&data, target).unwrap();
            asker.recv_from(&mut data).unwrap();
            began.elapsed().as_secs_f64() * 1e3
        };
        std::iter::repeat_with(once).take(count).collect()
    })
}

/// The least of some figures.
pub fn least(figures: &[f64]) -> f64 {
    figures.iter().copied().fold(f64::INFINITY, f64::min)
}

/// CPU time that a process has used, seconds.
pub fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    stat.split_whitespace().next().unwrap().parse::<f64>().unwrap() / 1e9
}
