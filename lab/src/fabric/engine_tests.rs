//! The network without a machine: packets in, deliveries out, at computed times.

use gridcast_core::broadcast::topology::{Host, LimitedHost, Link as Declared, Topology};

use super::super::Port as PortSpec;
use super::super::packet::tests::packet;
use super::*;

/// Hosts A, B on switch X, C, D on switch Y, joined by a trunk.
fn dumbbell(adapt: impl FnOnce(&mut Topology)) -> Engine {
    let link = |a, b, mbps| Declared { delay_ms: Some(1.0), ..Declared::new(a, b, mbps) };
    let mut topology = Topology {
        hosts: ["A", "B", "C", "D"].iter().map(|name| Host::Name((*name).to_owned())).collect(),
        switches: vec!["X".into(), "Y".into()],
        links: vec![
            link("A", "X", 100.0),
            link("B", "X", 100.0),
            link("X", "Y", 100.0),
            link("C", "Y", 100.0),
            link("D", "Y", 50.0),
        ],
    };
    adapt(&mut topology);
    let ports = topology.hosts.iter().zip(1..).map(|(host, number)| PortSpec {
        host: host.name().to_owned(),
        pid: 1,
        address: Ipv4Addr::new(10, 42, 0, number),
        prefix: 16,
    });
    let ports = ports.collect();
    Engine::new(&FabricSpec { topology, ports, seed: 7 }).unwrap()
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 42, 0, number)
}

/// A datagram of 1500 bytes.
fn datagram(to: Ipv4Addr) -> Vec<u8> {
    packet(to, 17, &[0; 1480], 0)
}

/// Port and time of each delivery.
fn run(engine: &mut Engine) -> Vec<(usize, u64)> {
    let mut deliveries = Vec::new();
    engine.advance(u64::MAX, &mut |delivery| deliveries.push((delivery.port, delivery.due_ns)));
    assert_eq!(engine.account.get(), 0, "all packets are gone");
    deliveries
}

/// Time of a full frame at 100 Mbit/s of goodput, nanoseconds.
const FRAME: u64 = 115_840;
const MS: u64 = 1_000_000;

#[test]
fn a_packet_takes_its_time_on_each_link() {
    let mut engine = dumbbell(|_| {});
    engine.send(0, &datagram(address(3)), 0);
    assert_eq!(engine.due_ns(), Some(FRAME + 3 * MS), "nobody need wake for the switches");
    assert_eq!(run(&mut engine), [(2, FRAME + 3 * MS)]);
    engine.send(2, &datagram(address(4)), 10 * MS);
    assert_eq!(run(&mut engine), [(3, 10 * MS + 2 * FRAME + 2 * MS)], "D's link is half as fast");
    engine.send(3, &datagram(address(3)), 20 * MS);
    assert_eq!(run(&mut engine), [(2, 20 * MS + 2 * FRAME + 2 * MS)], "both ways");
    assert_eq!(engine.due_ns(), None);
}

#[test]
fn directions_differ_where_declared() {
    let mut engine = dumbbell(|topology| {
        topology.links[0].back_mbps = Some(50.0);
        topology.links[0].back_delay_ms = Some(5.0);
    });
    engine.send(0, &datagram(address(2)), 0);
    assert_eq!(run(&mut engine), [(1, FRAME + 2 * MS)]);
    engine.send(1, &datagram(address(1)), 0);
    assert_eq!(run(&mut engine), [(0, 2 * FRAME + 6 * MS)]);
}

#[test]
fn a_trunk_is_shared_and_says_where_packets_were_dropped() {
    let mut engine = dumbbell(|topology| topology.links[2].queue_bytes = Some(10 * 1538));
    for _ in 0..50 {
        engine.send(0, &datagram(address(3)), 0);
        engine.send(1, &datagram(address(3)), 0);
    }
    let deliveries = run(&mut engine);
    let last = deliveries.last().unwrap().1;
    let expected = deliveries.len() as u64 * FRAME + 3 * MS;
    assert_eq!(last, expected, "the trunk carries one after the other, without a gap");
    let counters = engine.counters();
    assert_eq!(counters.link("A", "X").unwrap().packets, 50);
    assert_eq!(counters.link("B", "X").unwrap().dropped_packets, 0);
    let trunk = counters.link("X", "Y").unwrap();
    assert_eq!(trunk.packets + trunk.dropped_packets, 100);
    assert_eq!(trunk.packets, deliveries.len() as u64);
    assert!((35..45).contains(&trunk.dropped_packets), "half but for the queue: {trunk:?}");
    assert!((9 * 1538..=10 * 1538).contains(&trunk.max_queue_bytes), "{trunk:?}");
    assert_eq!(counters.link("Y", "X").unwrap().packets, 0);
}

#[test]
fn a_broadcast_is_copied_at_switches_and_charged_to_each_link_once() {
    for destination in [Ipv4Addr::BROADCAST, Ipv4Addr::new(10, 42, 255, 255), Ipv4Addr::new(239, 1, 2, 3)] {
        let mut engine = dumbbell(|_| {});
        engine.send(0, &datagram(destination), 0);
        let mut ports: Vec<_> = run(&mut engine).iter().map(|(port, _)| *port).collect();
        ports.sort_unstable();
        assert_eq!(ports, [1, 2, 3]);
        let counters = engine.counters();
        let used: Vec<_> = counters.links.iter().filter(|link| link.packets > 0).collect();
        let names: Vec<_> = used.iter().map(|link| format!("{}{}", link.from, link.to)).collect();
        assert_eq!(names, ["AX", "XB", "XY", "YC", "YD"]);
        assert!(used.iter().all(|link| (link.packets, link.bytes) == (1, 1538)));
    }
}

#[test]
fn broadcasts_reach_each_host_once_in_a_network_with_cycles() {
    let mut engine = dumbbell(|topology| {
        topology.links.push(Declared::new("A", "Y", 10.0));
        topology.links.push(Declared::new("B", "C", 10.0));
        topology.links.push(Declared::new("B", "Y", 10.0));
    });
    for source in 0..4 {
        engine.send(source, &datagram(Ipv4Addr::BROADCAST), 0);
        let mut ports: Vec<_> = run(&mut engine).iter().map(|(port, _)| *port).collect();
        ports.sort_unstable();
        let others: Vec<_> = (0..4).filter(|port| *port != source).collect();
        assert_eq!(ports, others);
    }
}

#[test]
fn what_cannot_be_delivered_is_counted() {
    let mut engine = dumbbell(|_| {});
    engine.send(0, &datagram(Ipv4Addr::new(8, 8, 8, 8)), 0);
    engine.send(0, &datagram(address(9)), 0);
    engine.send(0, &[0; 60], 0);
    assert_eq!(run(&mut engine), []);
    let port = &engine.counters().ports[0];
    assert_eq!((port.sent, port.unroutable, port.foreign), (2, 2, 1));
}

#[test]
fn super_packets_are_cut_as_finely_as_the_slowest_link_wants() {
    let mut tcp = vec![0; 20 + 40 * 1460];
    tcp[12] = 5 << 4;
    let parts = |mbps: f64| {
        let mut engine = dumbbell(|topology| topology.links[4].mbps = mbps);
        engine.send(0, &packet(address(4), 6, &tcp, 1460), 0);
        let mut counts = Vec::new();
        engine.advance(u64::MAX, &mut |delivery| counts.push(delivery.window.count));
        assert_eq!(counts.iter().sum::<u32>(), 40);
        counts
    };
    assert_eq!(parts(10.0), [1; 40]);
    assert_eq!(parts(1000.0), [4; 10], "the links of 100 Mbit/s want it so");
}

#[test]
fn lost_segments_are_cut_out_of_super_packets() {
    let mut tcp = vec![0; 20 + 40 * 1460];
    tcp[12] = 5 << 4;
    let mut engine = dumbbell(|topology| {
        for link in &mut topology.links {
            link.mbps = 10_000.0;
        }
        topology.links[2].loss_percent = Some(20.0);
    });
    let mut delivered = 0;
    for round in 0..50 {
        engine.send(0, &packet(address(3), 6, &tcp, 1460), round * MS);
        engine.advance(u64::MAX, &mut |delivery| {
            delivered += u64::from(delivery.window.count);
            assert!(delivery.packet.part(delivery.window).is_none_or(|part| !part.headers().is_empty()));
        });
    }
    let trunk = engine.counters().link("X", "Y").unwrap().clone();
    assert_eq!((trunk.packets, trunk.dropped_packets), (2000, 0));
    assert_eq!(trunk.lost_packets + delivered, 2000);
    assert!((300..500).contains(&trunk.lost_packets), "{trunk:?}");
}

#[test]
fn budgets_of_hosts_hold() {
    let limited = |send, receive, total| {
        let name = "A".to_owned();
        let host =
            LimitedHost { name, send_mbps: send, receive_mbps: receive, total_mbps: total, disk_mbps: None };
        dumbbell(|topology| topology.hosts[0] = Host::Limited(host))
    };
    // Ten packets out, ten in. At 10 Mbit/s each takes ten frames' time.
    let last = |mut engine: Engine| {
        for _ in 0..10 {
            engine.send(0, &datagram(address(2)), 0);
            engine.send(1, &datagram(address(1)), 0);
        }
        let deliveries = run(&mut engine);
        let last = |port| deliveries.iter().filter(|(to, _)| *to == port).map(|(_, at)| *at).max().unwrap();
        (last(1), last(0))
    };
    let free = 10 * FRAME + 2 * MS;
    assert_eq!(last(limited(Some(10.0), None, None)), (10 * 10 * FRAME + FRAME + 2 * MS, free));
    assert_eq!(last(limited(None, Some(10.0), None)), (free, 10 * 10 * FRAME + FRAME + 2 * MS));
    let (sent, received) = last(limited(None, None, Some(10.0)));
    assert!(sent.max(received) >= 20 * 10 * FRAME, "both directions share the budget");
    let counters = limited(Some(10.0), None, Some(10.0)).counters();
    let names: Vec<_> = counters.budgets.iter().map(|budget| (&budget.from[..], &budget.to[..])).collect();
    assert_eq!(names, [("A", "sendMbps"), ("A", "totalMbps")]);
}

#[test]
fn a_slow_stream_does_not_keep_a_fast_trunk() {
    // One host trickles in at 1 Mbit/s; the other must not notice on the trunk.
    let mut engine = dumbbell(|topology| topology.links[0].mbps = 1.0);
    engine.send(0, &datagram(address(3)), 0);
    let mut times = Vec::new();
    for packet in 0..90 {
        engine.advance(packet * FRAME, &mut |delivery| times.push(delivery.due_ns));
        engine.send(1, &datagram(address(3)), packet * FRAME);
    }
    times.extend(run(&mut engine).iter().map(|(_, at)| *at));
    let expected: Vec<u64> = (1..=90).chain([100]).map(|frames| frames * FRAME + 3 * MS).collect();
    assert_eq!(times, expected);
}

#[test]
fn waking_when_due_delivers_nothing_late() {
    let mut engine = dumbbell(|topology| {
        topology.links[2] = Declared { queue_bytes: Some(1 << 20), ..Declared::new("X", "Y", 30.0) };
    });
    let mut tcp = vec![0; 20 + 40 * 1460];
    tcp[12] = 5 << 4;
    for (from, to, at) in [(0, 3, 0), (1, 4, 10_000), (2, 1, 20_000), (3, 2, 30_000), (0, 4, 40_000)] {
        engine.advance(at, &mut |_| {});
        engine.send(from, &packet(address(to), 6, &tcp, 1460), at);
    }
    let mut segments = 0;
    while let Some(due) = engine.due_ns() {
        engine.advance(due, &mut |delivery| {
            // A nanosecond for rounding.
            assert!(due.abs_diff(delivery.due_ns) <= 1, "{due} {}", delivery.due_ns);
            segments += delivery.window.count;
        });
    }
    assert_eq!(segments, 200);
}
