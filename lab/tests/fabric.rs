//! A real fabric between real nodes: what programs in the nodes see of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use common::net::{End, cpu_seconds, goodput_mbps, least, rtts_ms, udp, udp_on};
use common::{Nodes, eventually, log};
use gridcast_core::broadcast::topology::{Host, Link, Topology};
use gridcast_lab::fabric::{Counters, Fabric, FabricError, FabricSpec, Port};

/// Nodes on a fabric.
struct Net {
    fabric: Fabric,
    nodes: Nodes,
}

fn link(a: &str, b: &str, mbps: f64, delay_ms: f64) -> Link {
    Link { delay_ms: Some(delay_ms), ..Link::new(a, b, mbps) }
}

fn spec(nodes: &Nodes, names: &[&str], switches: &[&str], links: Vec<Link>) -> FabricSpec {
    let ports = nodes.nodes.iter().enumerate().map(|(index, node)| Port {
        host: node.name().to_owned(),
        pid: node.pid(),
        address: Ipv4Addr::new(10, 42, 0, index as u8 + 1),
        prefix: 16,
    });
    FabricSpec {
        ports: ports.collect(),
        topology: Topology {
            hosts: names.iter().map(|name| Host::Name((*name).to_owned())).collect(),
            switches: switches.iter().map(|name| (*name).to_owned()).collect(),
            links,
        },
        seed: 42,
    }
}

impl Net {
    fn new(names: &[&str], switches: &[&str], links: Vec<Link>) -> Self {
        let nodes = Nodes::start(names, |_| {});
        let spec = spec(&nodes, names, switches, links);
        let state = nodes.state.path();
        let fabric = Fabric::start(&spec, state, nodes.lifetime.watch().unwrap(), log(state));
        Self { fabric: fabric.unwrap_or_else(|error| panic!("{error}")), nodes }
    }

    fn end(&self, node: usize) -> End {
        End { pid: self.nodes.nodes[node].pid(), address: Ipv4Addr::new(10, 42, 0, node as u8 + 1) }
    }

    /// The best of three, for the machine has other things to do.
    fn best_mbps(&self, from: usize, to: usize, mbps: f64) -> f64 {
        let window = Duration::from_millis(if mbps < 50.0 { 2500 } else { 1000 });
        let mut best = 0.0;
        for _ in 0..3 {
            let warm_up = Duration::from_millis(600);
            let once = goodput_mbps(self.end(from), self.end(to), None, warm_up, window).unwrap();
            best = if (once - mbps).abs() < (best - mbps).abs() { once } else { best };
            if (best - mbps).abs() < 0.02 * mbps {
                break;
            }
        }
        best
    }

    fn counters(&self) -> Counters {
        self.fabric.counters().unwrap()
    }
}

fn within(figure: f64, expected: f64, percent: f64) {
    assert!(
        (figure - expected).abs() <= expected * percent / 100.0,
        "{figure} is not {expected} ± {percent} %"
    );
}

#[test]
fn rates_are_as_declared_and_directions_differ() {
    let slow = Link { back_mbps: Some(10.0), ..link("b", "x", 100.0, 0.1) };
    let net = Net::new(&["a", "b"], &["x"], vec![link("a", "x", 100.0, 0.1), slow]);
    within(net.best_mbps(1, 0, 100.0), 100.0, 3.0);
    within(net.best_mbps(0, 1, 10.0), 10.0, 3.0);
    let counters = net.counters();
    assert!(counters.link("a", "x").unwrap().bytes > 1_000_000);
    assert!(counters.link("x", "b").unwrap().max_queue_bytes > 0);
}

#[test]
fn round_trips_are_twice_the_delay() {
    let mut back = link("a", "x", 1000.0, 2.0);
    back.back_delay_ms = Some(4.0);
    let net = Net::new(
        &["a", "b", "c"],
        &["x"],
        vec![back, link("b", "x", 1000.0, 5.0), link("c", "x", 1000.0, 0.1)],
    );
    for (from, to, expected) in [(0, 1, 16.0), (1, 0, 16.0), (0, 2, 6.2), (2, 1, 10.2)] {
        let rtt = least(&rtts_ms(net.end(from), net.end(to), 64, 30));
        assert!((expected..expected + 0.5).contains(&rtt), "{rtt} is not {expected}");
    }
    let counters = net.counters();
    assert!(counters.links.iter().all(|link| link.dropped_packets + link.lost_packets == 0));
}

#[test]
fn large_datagrams_pass_whole_at_any_rate() {
    let net = Net::new(&["a", "b"], &["x"], vec![link("a", "x", 10.0, 0.1), link("b", "x", 100.0, 0.1)]);
    let rtt = least(&rtts_ms(net.end(0), net.end(1), 50_000, 5));
    // 33 fragments of 1500 bytes and one of the rest, there and back; each link stores and forwards fragments.
    let bytes = f64::from(50_008 + 34 * 58);
    let ms = bytes * 8.0 / 10_000.0 * 1448.0 / 1538.0;
    assert!((2.0 * ms..2.0 * ms + 3.0).contains(&rtt), "{rtt} is not {}", 2.0 * ms);
    let counters = net.counters();
    assert!(counters.links.iter().all(|link| link.dropped_packets == 0), "{:?}", counters.links);
    assert_eq!(counters.link("a", "x").unwrap().packets % 34, 0);
}

#[test]
fn loss_is_random_and_as_declared() {
    const SENT: usize = 6000;
    let lossy = Link { loss_percent: Some(5.0), back_loss_percent: Some(0.0), ..link("a", "x", 1000.0, 0.1) };
    let net = Net::new(&["a", "b"], &["x"], vec![lossy, link("b", "x", 1000.0, 0.1)]);
    for (from, to, expected, deviation) in [(0, 1, 0.05, 17.0), (1, 0, 0.0, 0.0)] {
        let (sender, receiver) = (udp(net.end(from), 0), udp(net.end(to), 0));
        let target = receiver.local_addr().unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let received = thread::scope(|scope| {
            let count = scope.spawn(|| std::iter::from_fn(|| receiver.recv_from(&mut [0; 64]).ok()).count());
            for _ in 0..SENT / 50 {
                for _ in 0..50 {
                    sender.send_to(&[0; 64], target).unwrap();
                }
                thread::sleep(Duration::from_micros(500));
            }
            count.join().unwrap()
        });
        let lost = (SENT - received) as f64;
        let expected = expected * SENT as f64;
        assert!((lost - expected).abs() <= 5.0 * deviation, "{lost} lost, not {expected}");
        let counters = net.counters();
        assert_eq!(counters.links.iter().map(|link| link.dropped_packets).sum::<u64>(), 0);
        if from == 0 {
            assert_eq!(counters.link("a", "x").unwrap().lost_packets, lost as u64);
        }
    }
}

/// a, b on switch x; c, d on switch y.
fn dumbbell(trunk: Link) -> Net {
    let edge = |host: &str, switch: &str| link(host, switch, 100.0, 0.1);
    Net::new(
        &["a", "b", "c", "d"],
        &["x", "y"],
        vec![edge("a", "x"), edge("b", "x"), edge("c", "y"), edge("d", "y"), trunk],
    )
}

#[test]
fn a_trunk_is_shared() {
    let net = dumbbell(link("x", "y", 60.0, 1.0));
    let (warm_up, window) = (Duration::from_millis(700), Duration::from_millis(1500));
    let both = |pairs: [(usize, usize); 2]| {
        thread::scope(|scope| {
            pairs
                .map(|(from, to)| {
                    let (from, to) = (net.end(from), net.end(to));
                    scope.spawn(move || goodput_mbps(from, to, None, warm_up, window).unwrap())
                })
                .map(|rate| rate.join().unwrap())
        })
    };
    let [one, other] = both([(0, 2), (1, 3)]);
    within(one + other, 60.0, 5.0);
    assert!(one.min(other) > 6.0, "none starves: {one} {other}");
    // The other way round at the same time: full duplex, but for the acknowledgements of the other.
    let [there, back] = both([(0, 2), (3, 1)]);
    within(there, 55.0, 12.0);
    within(back, 55.0, 12.0);
}

#[test]
fn broadcast_and_multicast_reach_all_and_cost_each_link_once() {
    let net = dumbbell(link("x", "y", 100.0, 0.1));
    let group = Ipv4Addr::new(239, 7, 7, 7);
    let sender = udp(net.end(0), 0);
    sender.set_broadcast(true).unwrap();
    let receivers: Vec<_> = (1..4)
        .map(|node| {
            let socket = udp_on(net.end(node), SocketAddr::from(([0, 0, 0, 0], 9000)));
            socket.join_multicast_v4(&group, &net.end(node).address).unwrap();
            socket
        })
        .collect();
    let quiet = || {
        let packets = || net.counters().links.iter().map(|link| link.packets).sum::<u64>();
        let mut before = packets();
        eventually("membership reports have passed", || {
            thread::sleep(Duration::from_millis(50));
            let now = packets();
            std::mem::replace(&mut before, now) == now
        });
    };
    quiet();
    for destination in [Ipv4Addr::new(10, 42, 255, 255), Ipv4Addr::BROADCAST, group] {
        let before = net.counters();
        let text = destination.to_string();
        sender.send_to(text.as_bytes(), (destination, 9000)).unwrap();
        for receiver in &receivers {
            let mut data = [0; 64];
            let (length, from) = receiver.recv_from(&mut data).unwrap();
            assert_eq!((&data[..length], from), (text.as_bytes(), sender.local_addr().unwrap()));
        }
        let after = net.counters();
        let bytes = text.len() as u64 + 28 + 38;
        for (from, to) in [("a", "x"), ("x", "b"), ("x", "y"), ("y", "c"), ("y", "d")] {
            let (before, after) = (before.link(from, to).unwrap(), after.link(from, to).unwrap());
            // Membership reports are sent again now and then, and are broadcast too.
            assert!(after.packets > before.packets, "{destination} {from} {to}");
            assert!(after.bytes >= before.bytes + bytes, "{destination} {from} {to}");
        }
    }
}

#[test]
fn counters_tell_where_packets_were_dropped() {
    let narrow = Link { queue_bytes: Some(10_000), ..link("x", "y", 1.0, 0.1) };
    let mut net = dumbbell(narrow);
    let sender = udp(net.end(0), 0);
    for _ in 0..100 {
        sender.send_to(&[0; 1000], (net.end(2).address, 9)).unwrap();
    }
    sender.send_to(&[0; 100], "10.42.9.9:9").unwrap();
    eventually("all packets are counted", || {
        let counters = net.counters();
        let trunk = counters.link("x", "y").unwrap();
        trunk.packets + trunk.dropped_packets == 100 && counters.ports[0].unroutable == 1
    });
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..20).for_each(|_| assert_eq!(net.counters().links.len(), 10)));
        }
    });
    let counters = net.fabric.stop().unwrap();
    let trunk = counters.link("x", "y").unwrap();
    assert_eq!(trunk.packets + trunk.dropped_packets, 100);
    assert!(trunk.dropped_packets > 70 && trunk.max_queue_bytes <= 10_000, "{trunk:?}");
    let elsewhere = counters.links.iter().filter(|link| (&link.from[..], &link.to[..]) != ("x", "y"));
    assert_eq!(elsewhere.map(|link| link.dropped_packets).sum::<u64>(), 0);
    assert_eq!(counters.ports[0].foreign, 0, "nodes speak IPv4 only");
}

#[test]
fn interfaces_look_as_on_a_cluster() {
    let net = Net::new(&["a", "b"], &["x"], vec![link("a", "x", 100.0, 0.1), link("b", "x", 100.0, 0.1)]);
    let says = |script: &str| net.nodes.says(0, script);
    assert_eq!(says("cat /sys/class/net/eth0/mtu"), "1500");
    assert_eq!(says("ls /sys/class/net"), "eth0\nlo");
    // Destination and mask as the kernel prints them, backwards: the network, all groups, the limited broadcast.
    let routes = says("cat /proc/net/route");
    for (destination, mask) in [("00002A0A", "0000FFFF"), ("000000E0", "000000F0"), ("FFFFFFFF", "FFFFFFFF")]
    {
        let there =
            |line: &str| line.contains(destination) && line.contains(mask) && line.starts_with("eth0");
        assert!(routes.lines().any(there), "{destination} is not in {routes}");
    }
    assert!(says("cat /proc/net/fib_trie").contains("10.42.255.255\n           /32 link BROADCAST"));
    assert_eq!(says("cat /proc/net/if_inet6 2> /dev/null | grep -c eth0 || true"), "0");
}

#[test]
fn an_idle_fabric_costs_nothing_even_when_a_node_has_gone() {
    let names = ["a", "b", "c", "d"];
    let links = names.map(|name| link(name, "x", 1000.0, 0.1)).to_vec();
    let mut net = Net::new(&names, &["x"], links);
    for ended in [false, true] {
        if ended {
            net.nodes.nodes[3].stop().unwrap();
        }
        // Of the first seconds of an interface are the membership reports.
        let costs = || {
            let before = cpu_seconds(net.fabric.pid());
            thread::sleep(Duration::from_millis(500));
            cpu_seconds(net.fabric.pid()) - before
        };
        eventually("less than 1 % of a core", || costs() < 0.005);
        assert!(least(&rtts_ms(net.end(0), net.end(1), 64, 5)) < 2.0, "the others go on");
    }
}

#[test]
fn a_fabric_ends_with_its_lifetime_and_refuses_what_cannot_be() {
    let nodes = Nodes::start(&["a", "b"], |_| {});
    let state = nodes.state.path();
    let links = || vec![link("a", "x", 100.0, 0.1), link("b", "x", 100.0, 0.1)];
    let start = |spec: &FabricSpec| Fabric::start(spec, state, nodes.lifetime.watch().unwrap(), log(state));
    let good = spec(&nodes, &["a", "b"], &["x"], links());

    let mut unknown = good.clone();
    unknown.ports[1].host = "c".into();
    let error = start(&unknown).unwrap_err();
    assert!(error.to_string().contains("port of c"), "{error}");
    let mut twice = good.clone();
    twice.ports[1].address = twice.ports[0].address;
    assert_eq!(start(&twice).unwrap_err().reason(), "PortInvalid");
    let mut gone = good.clone();
    gone.ports[1].pid = i32::MAX;
    let error = start(&gone).unwrap_err();
    assert!(matches!(&error, FabricError::NotReady(why) if why.contains("eth0 in b")), "{error}");

    // What failed has left no interface behind.
    let fabric = start(&good).unwrap();
    let process = format!("/proc/{}/stat", fabric.pid());
    drop(nodes.lifetime);
    eventually("the fabric ends", || {
        std::fs::read_to_string(&process).is_ok_and(|stat| stat.contains(") Z "))
    });
}
