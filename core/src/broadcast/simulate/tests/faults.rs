//! What goes wrong, and what becomes of it.

use super::*;

/// The worked example, 1 GB, with faults.
fn example(faults: &[&str]) -> Outcome {
    let topology = vector("two-switches").topology();
    let plan = planned(&topology, "S");
    run(&topology, &plan, &with(1_000_000_000, faults))
}

fn with(size_bytes: u64, faults: &[&str]) -> Settings {
    let faults = faults.iter().map(|text| text.parse().unwrap()).collect();
    Settings { faults, ..Settings::new(size_bytes) }
}

fn seconds(outcome: &Outcome, name: &str) -> f64 {
    outcome.nodes.iter().find(|node| node.name == name).unwrap().seconds.unwrap_or(f64::INFINITY)
}

fn reason<'a>(outcome: &'a Outcome, name: &str) -> Option<&'a str> {
    outcome.nodes.iter().find(|node| node.name == name).unwrap().reason.as_deref()
}

#[test]
fn a_relay_that_dies_is_bridged() {
    let outcome = example(&["at=2s kill=A"]);
    assert_eq!(reason(&outcome, "A"), Some("gone"));
    // Ideal: 13.3, 26.7 and 80 s; half a second until it is noticed.
    assert!(seconds(&outcome, "C") < 14.5, "{outcome:?}");
    assert!(seconds(&outcome, "D") < 28.0, "{outcome:?}");
    assert!(seconds(&outcome, "B") < 83.0, "{outcome:?}");
    assert_eq!(outcome.plans, 2);
}

#[test]
fn a_host_that_is_complete_takes_over_from_the_source() {
    let outcome = example(&["at=10s kill=S"]);
    // A had everything after 8 s.
    assert!(seconds(&outcome, "C") < 15.0 && seconds(&outcome, "B") < 83.0, "{outcome:?}");
}

#[test]
fn what_is_lost_with_the_source_is_named_and_the_rest_is_shared() {
    let outcome = example(&["at=4s kill=S"]);
    for name in ["A", "B", "C", "D"] {
        assert!(reason(&outcome, name).unwrap().contains("chunks are lost"), "{outcome:?}");
    }
    let back = example(&["at=4s kill=S", "at=30s back=S"]);
    assert!(["A", "B", "C", "D"].iter().all(|name| seconds(&back, name) < 120.0), "{back:?}");
}

#[test]
fn an_agent_that_restarts_gets_only_what_it_lacks() {
    let outcome = example(&["at=5s kill=C", "at=8s back=C"]);
    assert!(seconds(&outcome, "C") < 13.3 + 4.5, "{outcome:?}");
    let down = outcome.links.iter().find(|link| link.a == "C").unwrap().back_bytes;
    assert!(down < 1_010_000_000, "{down}");
}

#[test]
fn a_host_that_joins_changes_nobody_by_more_than_five_percent() {
    let topology = vector("two-switches").topology();
    let late = ["A", "C", "D"].map(str::to_owned);
    let plan = plan(&topology, "S", &late, &Options::default()).unwrap();
    let before = run(&topology, &plan, &with(1_000_000_000, &[]));
    let after = run(&topology, &plan, &with(1_000_000_000, &["at=3s join=B"]));
    for name in ["A", "C", "D"] {
        let ratio = seconds(&after, name) / seconds(&before, name);
        assert!(ratio < 1.05, "{name}: {ratio}");
    }
    assert!(seconds(&after, "B") < 80.0 * 1.05, "{after:?}");
}

#[test]
fn a_host_that_becomes_slow_slows_nobody_else_by_more_than_five_percent() {
    let outcome = example(&["at=1s slow=C,50"]);
    // C feeds D, and A's trees go on: ideal 8, 26.7 and 80 s, and what is lost until it is found out.
    assert!(seconds(&outcome, "A") < 8.0 * 1.05, "{outcome:?}");
    assert!(seconds(&outcome, "D") < 26.7 * 1.05 + 3.0, "{outcome:?}");
    assert!(seconds(&outcome, "B") < 80.0 * 1.05 + 3.0, "{outcome:?}");
    assert!(outcome.plans >= 2);
}

#[test]
fn a_link_that_changes_leads_to_a_new_plan() {
    let outcome = example(&["at=2s link=X,Y,150"]);
    assert!(outcome.plans >= 2, "{outcome:?}");
    // C: 150 Mbyte by then, 850 to come at 18.75 Mbyte/s.
    assert!(seconds(&outcome, "C") < 60.0 && seconds(&outcome, "D") < 65.0, "{outcome:?}");
}

#[test]
fn a_partition_is_named_and_healed() {
    let cut = example(&["at=2s cut=X,Y"]);
    assert!(seconds(&cut, "A") < 12.0 && seconds(&cut, "B") < 88.0, "{cut:?}");
    assert!(["C", "D"].iter().all(|name| reason(&cut, name).unwrap().contains("no way")), "{cut:?}");
    let healed = example(&["at=2s cut=X,Y", "at=20s heal=X,Y"]);
    assert!(seconds(&healed, "C") < 36.0 && seconds(&healed, "D") < 50.0, "{healed:?}");
    let soon = example(&["at=2s cut=X,Y", "at=2.4s heal=X,Y"]);
    assert!(seconds(&soon, "C") < 15.0, "{soon:?}");
}

#[test]
fn a_full_disk_stops_its_host_only() {
    let outcome = example(&["at=3s full=C"]);
    assert_eq!(reason(&outcome, "C"), Some("no space"));
    assert!(seconds(&outcome, "A") < 8.8 && seconds(&outcome, "D") < 28.0, "{outcome:?}");
}

#[test]
fn spoilt_chunks_are_fetched_again_and_their_sender_is_left() {
    let outcome = example(&["at=1s spoil=B"]);
    assert!(
        outcome.timeline.iter().any(|moment| moment.what.contains("B leaves A")),
        "{:?}",
        outcome.timeline
    );
    assert!(seconds(&outcome, "B") < 82.0, "{outcome:?}");
    assert!(outcome.wasted_bytes > 0);
}

#[test]
fn what_brings_nothing_new_is_given_up_and_named() {
    let topology = vector("two-switches").topology();
    let settings = Settings { patience: 5, ..Settings::new(1_000_000_000) };
    let outcome = run(&topology, &planned(&topology, "S"), &settings);
    for node in &outcome.nodes {
        assert!(node.reason.as_deref().is_some_and(|reason| reason.contains("in 5 events")), "{node:?}");
    }
}

/// Faults at random times, of all kinds.
fn random_faults(random: &mut Random, topology: &Topology, count: usize, seconds: f64) -> Vec<Fault> {
    let host = |random: &mut Random| topology.hosts[random.below(topology.hosts.len())].name().to_owned();
    let faults = (0..count).map(|_| {
        let link = topology.links[random.below(topology.links.len())].clone();
        let kind = match random.below(10) {
            0 | 1 => FaultKind::Kill(host(random)),
            2 | 3 => FaultKind::Back(host(random)),
            4 => FaultKind::Join(host(random)),
            5 => FaultKind::Spoil(host(random)),
            6 => FaultKind::Slow(host(random), random.between(1.0, 100.0)),
            7 => FaultKind::Cut(link.a, link.b),
            8 => FaultKind::Heal(link.a, link.b),
            _ => FaultKind::Link(link.a, link.b, random.between(1.0, 500.0)),
        };
        Fault { at: Duration::from_secs_f64(random.between(0.0, seconds)), kind }
    });
    faults.collect()
}

/// Whatever happens, each host that lives ends complete or the reason is named, and it ends.
fn survives(seed: u64) {
    let mut random = Random::new(seed);
    let (hosts, switches) = (3 + random.below(7), 1 + random.below(4));
    let topology = if seed.is_multiple_of(2) {
        random_tree(&mut random, hosts, switches)
    } else {
        random_mesh(&mut random, hosts, switches)
    };
    let mut others = destinations(&topology, "h0");
    others.truncate(1 + random.below(others.len()));
    let plan = plan(&topology, "h0", &others, &Options::default()).unwrap();
    let count = 1 + random.below(6);
    let faults = random_faults(&mut random, &topology, count, 20.0);
    let settings = Settings { faults, chunk_bytes: Some(MIB / 2), ..Settings::new(50 * MIB) };
    let outcome = run(&topology, &plan, &settings);
    for node in &outcome.nodes {
        let told = |what: &str| node.reason.as_deref().is_some_and(|reason| reason.contains(what));
        let named = told("gone") || told("no way") || told("no space");
        assert!(node.seconds.is_some() || named, "seed {seed}: {node:?}\n{outcome:?}\n{settings:?}");
    }
    assert!(outcome.plans < 100, "seed {seed}: {} plans", outcome.plans);
    assert_eq!(outcome.duplicate_bytes, 0, "seed {seed}");
    // Of each chunk: logs, counts for each hop, and some more. And a few events for each hop of a plan.
    let trees = plan.trees.len().max(16);
    let bound = 8 * (trees + hosts);
    assert!(outcome.memory_per_chunk < bound as f64, "seed {seed}: {}", outcome.memory_per_chunk);
    assert!(outcome.most_waiting < 4096 + 64 * trees * hosts, "seed {seed}: {}", outcome.most_waiting);
}

#[test]
fn random_faults_leave_every_host_complete_or_the_reason_named() {
    (0..300).for_each(survives);
}

/// `cargo test --release -p gridcast-core thousands -- --ignored`
#[test]
#[ignore = "thousands of runs, for a release build"]
fn thousands_of_random_faults() {
    (1000..6000).for_each(survives);
}
