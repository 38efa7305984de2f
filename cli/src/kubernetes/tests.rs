use gridcast_core::report::{BoundKind, Outcome};
use gridcast_crds::{Resource, VirtualCluster, manifest, network_map::Matrices};
use insta::assert_snapshot;

use super::{
    compose,
    seen::{Object, Seen},
    shown,
};
use crate::report::table;

/// The objects of a fixture, which the API server would take.
fn seen(fixture: &str) -> Seen {
    let documents = manifest::parse(fixture).unwrap_or_else(|errors| panic!("{errors}"));
    let mut seen: Option<Seen> = None;
    for document in documents {
        match document.resource {
            Resource::VirtualCluster(cluster) => seen = Some(Seen::new(*cluster)),
            Resource::NetworkMap(map) => assert!(seen.as_mut().unwrap().take(Object::Map(Some(map)))),
            Resource::Broadcast(broadcast) => {
                let name = broadcast.metadata.name.clone().unwrap();
                assert!(seen.as_mut().unwrap().take(Object::Broadcast(name, Some(broadcast))));
            }
            other => panic!("{other:?}"),
        }
    }
    seen.unwrap()
}

fn ring() -> Seen {
    seen(include_str!("fixtures/ring.yaml"))
}

fn staging() -> Seen {
    seen(include_str!("fixtures/staging.yaml"))
}

fn failed() -> Seen {
    seen(include_str!("fixtures/failed.yaml"))
}

/// `docs/report.schema.json` holds for whatever is composed.
fn checked(seen: &Seen) -> gridcast_core::report::Report {
    let report = compose::report(seen);
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/report.schema.json")).unwrap();
    let json = serde_json::to_value(&report).unwrap();
    let errors: Vec<String> =
        jsonschema::validator_for(&schema).unwrap().iter_errors(&json).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    report
}

#[test]
fn a_run_that_ended_well_has_the_report_of_a_local_run() {
    let report = checked(&ring());
    assert_eq!((report.outcome, report.exit_code), (Outcome::Complete, 0));
    assert_eq!((report.reason.as_str(), report.message.as_str()), ("", ""));
    let close = |seconds: Option<f64>, expected: f64| (seconds.unwrap() - expected).abs() < 1e-9;
    assert!(close(report.timeline.scheduled, 0.16) && close(report.timeline.finished, 9.0));
    assert!(close(report.timeline.first_rank, 6.6));
    let network = report.network.as_ref().unwrap();
    assert_eq!(network.timestamps, "kernel");
    let slowest = network.worst_of("bandwidthMbps").unwrap();
    assert_eq!(
        (slowest.from.as_str(), slowest.to.as_str(), slowest.value),
        ("ring-node-0", "ring-node-2", 941.0)
    );
    let lossy =
        network.rtt_summary["64"].iter().find(|p| p.from == "ring-node-0" && p.to == "ring-node-2").unwrap();
    assert_eq!((lossy.sent, lossy.received, lossy.min, lossy.mdev), (10, 9, 0.23, 0.04));
    let dataset = &report.data.as_ref().unwrap()[0];
    assert_eq!((dataset.files, dataset.nodes.len(), dataset.bound_kind), (2, 3, BoundKind::Measured));
    let run = report.run.as_ref().unwrap();
    assert_eq!((run.restarts, run.placement.len()), (1, 3));
    assert!(run.log_tail.ends_with("the ring is closed\n"));
    assert_eq!(report.tcp.as_ref().unwrap().len(), 2);
    assert_snapshot!("report_of_ring", table(&report));
}

#[test]
fn a_failure_is_told_with_its_word_and_its_log() {
    let report = checked(&failed());
    assert_eq!(
        (report.outcome, report.exit_code, report.reason.as_str()),
        (Outcome::Failed, 135, "RankKilled")
    );
    // Counted from the object's own creation where the timeline does not say.
    assert_eq!(report.timeline.launched, Some(3.0));
    assert_eq!(report.timeline.finished, Some(4.0));
    assert!(report.network.is_none() && report.data.is_none() && report.tcp.is_none());
    assert!(report.run.unwrap().log_tail.contains("Bus error"));
}

#[test]
fn what_has_not_ended_is_unfinished_and_says_why() {
    let report = checked(&staging());
    assert_eq!((report.outcome, report.exit_code), (Outcome::Unfinished, 0));
    assert_eq!((report.reason.as_str(), report.message.as_str()), ("Staging", "ics: 1 of 2 nodes have it"));
    // Of `tables` nothing is known yet.
    let data = report.data.unwrap();
    assert_eq!(data.len(), 1);
    assert_eq!(data[0].bound_kind, BoundKind::Assumed);
    let blank = Seen::new(VirtualCluster { status: None, ..staging().cluster });
    assert_eq!(checked(&blank).reason, "NotObserved");
}

#[test]
fn a_cluster_without_a_program_is_complete_once_it_is_up() {
    let mut up = ring();
    up.cluster.spec.run = None;
    up.cluster.status.as_mut().unwrap().conditions.retain(|c| c.type_ == "Ready");
    assert_eq!(checked(&up).outcome, Outcome::Complete);
    up.cluster.spec.suspend = true;
    assert_eq!(checked(&up).outcome, Outcome::Unfinished);
}

#[test]
fn more_hosts_than_a_status_keeps_have_figures_without_matrices() {
    let mut large = ring();
    large.cluster.spec.groups[0].replicas = 200;
    large.map.as_mut().unwrap().status.as_mut().unwrap().matrices = None;
    let report = checked(&large);
    let network = report.network.as_ref().unwrap();
    assert_eq!(network.hosts.len(), 200);
    assert!(network.notes.iter().any(|note| note.contains("no matrices")));
    assert!(!table(&report).contains("the matrices of 200 hosts are in the report"));
    large.map = None;
    assert!(checked(&large).network.is_some());
}

#[test]
fn the_status_of_a_cluster_on_its_way() {
    assert_snapshot!("status_of_staging", shown::text(&staging()));
}

#[test]
fn the_status_of_a_cluster_that_ended() {
    assert_snapshot!("status_of_ring", shown::text(&ring()));
    let failed = shown::text(&failed());
    assert!(failed.contains("stalled, RankKilled: shm: rank 1") && failed.contains("Bus error"), "{failed}");
}

#[test]
fn a_terminal_obeys_nothing_and_no_line_is_wider() {
    let bad = "\u{1b}[31m\u{202e}\u{7} very long words of somebody else ".repeat(20);
    let mut hostile = ring();
    let status = hostile.cluster.status.as_mut().unwrap();
    for condition in &mut status.conditions {
        (condition.reason, condition.message) = (bad.clone(), bad.clone());
    }
    let run = status.run.as_mut().unwrap();
    (run.log_tail, run.launch) = (Some(bad.clone()), Some(bad.clone()));
    status.nodes[0].name.clone_from(&bad);
    (status.nodes[1].node, status.nodes[1].ready, status.nodes[1].reason) =
        (Some(bad.clone()), false, Some(bad.clone()));
    let broadcast = hostile.broadcasts.values_mut().next().unwrap().status.as_mut().unwrap();
    broadcast.strategy = Some(bad.clone());
    broadcast.worst[0].name.clone_from(&bad);
    broadcast.worst[1].message = Some(bad);
    for text in [shown::text(&hostile), table(&compose::report(&hostile))] {
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert!(!text.contains('\u{202e}'));
        for line in text.lines() {
            assert!(line.chars().count() <= 110, "{} columns: {line}", line.chars().count());
        }
    }
}

#[test]
fn matrices_of_another_shape_are_survived() {
    let mut odd = ring();
    let status = odd.map.as_mut().unwrap().status.as_mut().unwrap();
    let matrices = status.matrices.as_mut().unwrap();
    matrices.hosts.truncate(2);
    matrices.jitter_milliseconds.clear();
    matrices.loss_percent.insert("64".into(), vec![vec![], vec![Some(100.0)]]);
    checked(&odd);
    odd.map.as_mut().unwrap().status.as_mut().unwrap().matrices = Some(Matrices::default());
    checked(&odd);
    let _ = shown::text(&odd);
}

#[test]
fn another_cluster_of_the_same_name_is_not_this_one() {
    let mut seen = ring();
    let again = Box::new(seen.cluster.clone());
    assert!(seen.take(Object::Cluster(Some(again.clone()))));
    assert!(seen.take(Object::Map(None)) && seen.map.is_none());
    assert!(seen.take(Object::Broadcast("ring-ics".into(), None)) && seen.broadcasts.is_empty());
    let mut other = again;
    other.metadata.uid = Some("another".into());
    assert!(!seen.take(Object::Cluster(Some(other))));
    assert!(!seen.take(Object::Cluster(None)));
}

#[test]
fn scripts_get_the_statuses_as_they_are() {
    let seen = ring();
    let json = seen.json();
    assert_eq!(json["status"]["run"]["exitCode"], 0);
    assert_eq!(json["networkMap"]["status"]["matrices"]["hosts"][0], "ring-node-0");
    assert_eq!(json["broadcasts"][0]["name"], "ring-ics");
    assert_eq!(json["broadcasts"][0]["status"]["nodesStaged"], 3);
}
