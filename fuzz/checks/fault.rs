//! Whatever faults are given, one a line: those that are none are refused, and with the others every host ends with
//! everything or with a reason.

use gridcast_core::broadcast::{
    plan::{Options, plan},
    simulate::{Fault, Settings, simulate},
    topology::{Host, Link, Topology},
};

/// Two switches with a way around through a host.
fn network() -> Topology {
    let link = |(a, b, mbps): (&str, &str, f64)| Link::new(a, b, mbps);
    Topology {
        hosts: ["S", "A", "B", "C", "D"].map(|name| Host::Name(name.to_owned())).to_vec(),
        switches: vec!["X".to_owned(), "Y".to_owned()],
        links: [
            ("S", "X", 1000.0),
            ("A", "X", 1000.0),
            ("B", "X", 100.0),
            ("X", "Y", 600.0),
            ("C", "Y", 1000.0),
            ("D", "Y", 300.0),
            ("A", "D", 50.0),
        ]
        .map(link)
        .to_vec(),
    }
}

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut faults: Vec<Fault> = Vec::new();
    for line in text.lines() {
        match line.parse::<Fault>() {
            Ok(fault) => {
                // What is written is read again.
                let again = format!("at={}s {}", fault.at.as_secs_f64(), fault.kind).parse::<Fault>();
                assert_eq!(again.map(|again| again.kind), Ok(fault.kind.clone()));
                faults.push(fault);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    faults.truncate(8);
    let network = network();
    let destinations = ["A", "B", "C"].map(str::to_owned);
    let options = Options::default();
    let Ok(plan) = plan(&network, "S", &destinations, &options) else { panic!("there is a plan") };
    let settings = Settings { chunk_bytes: Some(1 << 20), faults, ..Settings::new(100 << 20) };
    if let Ok(outcome) = simulate(&network, &plan, &settings) {
        for node in &outcome.nodes {
            assert!(node.seconds.is_some() != node.reason.is_some(), "{node:?}");
        }
    }
}
