//! Does the fabric reach what a topology declares, and what does that cost?
//!
//! Run as root: `cargo run --release -p gridcast-lab --example fabric-table [-- --json]`. For each rate and delay: two
//! nodes on a switch, TCP goodput over three seconds for cubic and bbr, least round-trip time of 64-byte datagrams on
//! the idle network, and the share of a core that the fabric's process used during the TCP transfer. Then four nodes,
//! all sending at 1 Gbit/s in a ring.
#![allow(clippy::expect_used, reason = "a measurement that fails has nothing else to say")]

#[path = "../tests/common/net.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, reason = "shared with the tests")]
mod net;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use gridcast_core::broadcast::topology::Topology;
use gridcast_lab::Lifetime;
use gridcast_lab::fabric::{Fabric, FabricSpec, Port};
use gridcast_lab::node::{Node, NodeSpec, command};
use net::{End, cpu_seconds, goodput_mbps, least, rtts_ms};

const WARM_UP: Duration = Duration::from_millis(1500);
const WINDOW: Duration = Duration::from_secs(3);

fn main() {
    gridcast_lab::node::run_init_if_asked();
    let json = std::env::args().any(|argument| argument == "--json");
    let mut rows = Vec::new();
    if !json {
        println!("declared          reached Mbit/s    RTT ms             fabric's CPU   late");
        println!("Mbit/s   RTT ms   cubic     bbr     idle    loaded     cubic    bbr    average us");
    }
    for one_way_ms in [0.1, 2.25, 12.5] {
        for mbps in [10.0, 100.0, 250.0, 500.0, 940.0] {
            rows.push(row(mbps, one_way_ms, json));
        }
    }
    let ring = ring(json);
    if json {
        println!("{}", serde_json::json!({ "table": rows, "ring": ring }));
    }
}

struct Net {
    fabric: Fabric,
    nodes: Vec<Node>,
    _lifetime: Lifetime,
    _state: tempfile::TempDir,
}

impl Net {
    fn new(count: usize, mbps: f64, one_way_ms: f64) -> Self {
        let state = tempfile::tempdir().expect("a state directory");
        let lifetime = Lifetime::new().expect("a lifetime");
        let names: Vec<String> = (0..count).map(|number| format!("node-{number}")).collect();
        let log = || File::options().create(true).append(true).open(state.path().join("log")).expect("a log");
        let nodes = names.iter().zip(1..).map(|(name, number)| {
            let spec = node(state.path(), name, number);
            Node::start(&spec, lifetime.watch().expect("a lifetime"), log()).expect("a node")
        });
        let nodes: Vec<Node> = nodes.collect();
        let ports = nodes.iter().zip(1..).map(|(node, number)| Port {
            host: node.name().to_owned(),
            pid: node.pid(),
            address: Ipv4Addr::new(10, 42, 0, number),
            prefix: 16,
        });
        let spec = FabricSpec {
            topology: Topology::one_switch(&names, mbps, one_way_ms),
            ports: ports.collect(),
            seed: 1,
        };
        let fabric = Fabric::start(&spec, state.path(), lifetime.watch().expect("a lifetime"), log());
        Self { fabric: fabric.expect("a fabric"), nodes, _lifetime: lifetime, _state: state }
    }

    fn end(&self, node: usize) -> End {
        End { pid: self.nodes[node].pid(), address: Ipv4Addr::new(10, 42, 0, node as u8 + 1) }
    }
}

fn node(state: &Path, name: &str, number: u8) -> NodeSpec {
    let root = state.join(name);
    fs::create_dir(&root).expect("a directory");
    NodeSpec {
        name: name.to_owned(),
        address: Ipv4Addr::new(10, 42, 0, number),
        prefix: 16,
        root,
        private: Vec::new(),
        binds: Vec::new(),
        shm_bytes: 1 << 20,
        init: vec!["/bin/cat".to_owned()],
        environment: BTreeMap::new(),
    }
}

fn row(mbps: f64, one_way_ms: f64, json: bool) -> serde_json::Value {
    let net = Net::new(2, mbps, one_way_ms);
    let (a, b) = (net.end(0), net.end(1));
    // More than the product of any rate and delay here, so that the fabric is measured and not the buffers.
    for node in &net.nodes {
        let script = "for key in rmem wmem; do echo 4096 131072 67108864 > /proc/sys/net/ipv4/tcp_$key; done";
        let written = command(node.pid(), "/bin/sh").args(["-c", script]).status().expect("a shell");
        assert!(written.success(), "the buffers of {} were not raised", node.name());
    }
    let idle = least(&rtts_ms(a, b, 64, 50));
    let mut loaded = f64::NAN;
    let [cubic, bbr] = ["cubic", "bbr"].map(|name| {
        let (began, before) = (Instant::now(), cpu_seconds(net.fabric.pid()));
        let reached = thread::scope(|scope| {
            let rate = scope.spawn(|| goodput_mbps(a, b, Some(name), WARM_UP, WINDOW));
            thread::sleep(WARM_UP + WINDOW / 2);
            let rtts = rtts_ms(a, b, 64, 20);
            loaded = rtts.iter().sum::<f64>() / rtts.len() as f64;
            rate.join().expect("a receiver").ok()
        });
        let core = (cpu_seconds(net.fabric.pid()) - before) / began.elapsed().as_secs_f64();
        (reached, core, loaded)
    });
    let late = net.fabric.counters().expect("counters").lateness;
    if !json {
        let reached = |figure: Option<f64>| figure.map_or("-".to_owned(), |mbps| format!("{mbps:.1}"));
        println!(
            "{mbps:6.0} {:8.1} {:>8} {:>8} {idle:8.3} {:5.1}/{:<5.1} {:7.1}% {:6.1}% {:9.1}",
            4.0 * one_way_ms,
            reached(cubic.0),
            reached(bbr.0),
            cubic.2,
            bbr.2,
            100.0 * cubic.1,
            100.0 * bbr.1,
            late.average_us,
        );
    }
    serde_json::json!({
        "declaredMbps": mbps, "declaredRttMilliseconds": 4.0 * one_way_ms, "idleRttMilliseconds": idle,
        "cubic": { "mbps": cubic.0, "cores": cubic.1, "rttMilliseconds": cubic.2 },
        "bbr": { "mbps": bbr.0, "cores": bbr.1, "rttMilliseconds": bbr.2 },
        "lateness": late,
    })
}

/// Each node sends to the next at once; then none does anything.
fn ring(json: bool) -> serde_json::Value {
    let net = Net::new(4, 1000.0, 0.1);
    let before = (Instant::now(), cpu_seconds(net.fabric.pid()));
    let rates: Vec<f64> = thread::scope(|scope| {
        let flows: Vec<_> = (0..4)
            .map(|node| {
                let (from, to) = (net.end(node), net.end((node + 1) % 4));
                scope.spawn(move || goodput_mbps(from, to, None, WARM_UP, WINDOW))
            })
            .collect();
        flows.into_iter().filter_map(|flow| flow.join().ok()?.ok()).collect()
    });
    let cores =
        |since: (Instant, f64)| (cpu_seconds(net.fabric.pid()) - since.1) / since.0.elapsed().as_secs_f64();
    let busy = cores(before);
    let late = net.fabric.counters().expect("counters").lateness;
    thread::sleep(Duration::from_secs(2));
    let before = (Instant::now(), cpu_seconds(net.fabric.pid()));
    thread::sleep(Duration::from_secs(5));
    let idle = cores(before);
    if !json {
        println!(
            "\nring of 4 at 1 Gbit/s: {rates:.0?} Mbit/s, fabric {:.0} % of a core, {late:?}",
            100.0 * busy
        );
        println!("4 nodes idle: fabric {:.3} % of a core", 100.0 * idle);
    }
    serde_json::json!({ "mbps": rates, "busyCores": busy, "idleCores": idle, "lateness": late })
}
