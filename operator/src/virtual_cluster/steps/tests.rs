use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gridcast_control::{Remote, launch::Program};
use gridcast_core::{
    mpi::{HostSlots, Launcher},
    report::Network,
};
use gridcast_crds::{
    VirtualClusterSpec,
    source::ClaimPath,
    virtual_cluster::{Collect, CollectTo, Run, Tcp, TcpMode, TcpProfile, status::TunedSetting},
};
use gridcast_proto::v1::{self as wire, launch_event::Event};
use jiff::Timestamp;

use super::{
    collect,
    fake::{Member, collected, reason, until},
    gate, launch, tune,
};
use crate::virtual_cluster::{Gate, Launch};

fn hosts(names: &[&str]) -> Vec<wire::Host> {
    names.iter().map(|name| wire::Host { name: (*name).into(), address: "10.0.0.1".into() }).collect()
}

fn order(names: &[&str]) -> gate::Order {
    gate::Order { hosts: hosts(names), machinefile: "m0 slots=1\n".into(), launcher: "mpirun.openmpi" }
}

fn problem(host: &str, reason: &str) -> wire::CheckProblem {
    wire::CheckProblem { host: host.into(), reason: reason.into(), message: format!("{host}: it is so") }
}

#[tokio::test]
async fn the_gate_opens_when_the_last_member_is_there() {
    let members = [Member::start("m0", "a").await, Member::start("m1", "a").await];
    let (late, started) = Member::late("m2", "a", Duration::from_millis(300)).await;
    let mut remotes: Vec<Remote> = members.iter().map(|m| m.remote.clone()).collect();
    remotes.push(late);
    let (reports, report) = collected::<Gate>();
    let opened = gate::open(&remotes, &order(&["m0", "m1", "m2"]), &report).await;
    assert_eq!(opened.answering.len(), 3);
    assert_eq!(opened.trouble, None);
    let late = started.await.unwrap();
    for member in members.iter().chain([&late]) {
        let script = member.script();
        assert_eq!(script.configured.len(), 1);
        assert_eq!(script.configured[0].machinefile, "m0 slots=1\n");
        assert_eq!(script.configured[0].hosts.len(), 3);
    }
    // The first tries all and has the launcher, the others try the first.
    let checked = |member: &Member| member.script().checked[0].clone();
    assert_eq!((checked(&members[0]).peers.len(), &*checked(&members[0]).program), (3, "mpirun.openmpi"));
    assert_eq!((checked(&late).peers.len(), &*checked(&late).program), (1, ""));
    // Who was there was told meanwhile, and nobody was blamed for starting.
    let reports = reports.lock().unwrap();
    assert!(reports.iter().any(|gate| gate.answering.len() == 2 && !gate.answering.contains("m2")));
    assert!(reports.iter().all(|gate| gate.trouble.is_none()));
}

#[tokio::test]
async fn a_problem_is_told_with_its_host_until_it_is_mended() {
    let member = Member::start("m0", "a").await;
    member.script().problems.extend([vec![problem("m0", "NoMpirun")], vec![]]);
    let (reports, report) = collected::<Gate>();
    let opened = gate::open(std::slice::from_ref(&member.remote), &order(&["m0"]), &report).await;
    assert_eq!(opened.trouble, None);
    let troubles: Vec<_> = reports.lock().unwrap().iter().filter_map(|gate| gate.trouble.clone()).collect();
    assert_eq!((&*troubles[0].reason, &*troubles[0].message), ("NoMpirun", "m0: it is so"));
}

#[tokio::test]
async fn a_member_that_never_comes_and_one_of_another_cluster_are_named() {
    let foreign = Member::foreign("m0", "a").await;
    let gone = Member::start("m1", "a").await;
    let remotes = [foreign.remote.clone(), gone.remote.clone()];
    drop(gone);
    let (reports, report) = collected::<Gate>();
    let names = ["m0", "m1"];
    let open = tokio::spawn(async move { gate::open(&remotes, &order(&names), &report).await });
    let told = |word: &str| {
        let reports = reports.lock().unwrap();
        reports.iter().any(|gate| gate.trouble.as_ref().is_some_and(|t| t.reason == word))
    };
    until("the foreign key being told", || told("KeyRefused")).await;
    until("both being counted", || {
        let reports = reports.lock().unwrap();
        reports.iter().any(|g| {
            g.trouble
                .as_ref()
                .is_some_and(|t| t.message.starts_with("m0: ") && t.message.ends_with("; and 1 more"))
        })
    })
    .await;
    open.abort();
    assert_eq!(foreign.script().configured, []);
}

fn program(processes: i32) -> Program {
    Program::try_from(&Run { processes, command: vec!["ring".into()], ..Run::default() }).unwrap()
}

fn launch_order(names: &[&str], was_running: bool) -> launch::Order {
    launch::Order {
        id: "l-1".into(),
        program: program(i32::try_from(names.len()).unwrap()),
        launcher: Launcher::default(),
        slots: names.iter().map(|name| HostSlots { name: (*name).into(), slots: 1 }).collect(),
        was_running,
        now: || Timestamp::from_second(1_000).unwrap(),
    }
}

fn started(age_seconds: u64) -> Event {
    Event::Started(wire::LaunchStarted { pid: 1, age_micros: age_seconds * 1_000_000 })
}

fn ended(code: i32, tail: &str) -> Event {
    Event::Ended(wire::LaunchEnded {
        code,
        output_tail: tail.as_bytes().to_vec().into(),
        stderr_tail: tail.as_bytes().to_vec().into(),
        age_micros: 1_000_000,
        ..wire::LaunchEnded::default()
    })
}

fn rank(rank: u32, age_seconds: u64) -> wire::ObservedRank {
    wire::ObservedRank {
        rank,
        world: 2,
        age_micros: age_seconds * 1_000_000,
        ..wire::ObservedRank::default()
    }
}

async fn two() -> ([Member; 2], Vec<Remote>) {
    let members = [Member::start("m0", "a").await, Member::start("m1", "a").await];
    let remotes = members.iter().map(|m| m.remote.clone()).collect();
    (members, remotes)
}

#[tokio::test]
async fn a_program_is_followed_from_its_first_rank_to_its_end() {
    let (members, remotes) = two().await;
    let (reports, report) = collected::<Launch>();
    let order = launch_order(&["m0", "m1"], false);
    let follow = tokio::spawn(async move { launch::follow(&remotes, &order, &report).await });
    members[0].happens(started(5));
    members[0].happens(Event::Output(wire::LaunchOutput { data: b"\x1b[1mhello\r\n".to_vec().into() }));
    until("the start", || reports.lock().unwrap().iter().any(|l| l.started.is_some())).await;
    members[0].script().ranks = vec![rank(0, 3)];
    members[1].script().ranks = vec![rank(1, 2)];
    until("the first rank", || reports.lock().unwrap().iter().any(|l| l.first_rank.is_some())).await;
    until("the output", || reports.lock().unwrap().iter().any(|l| l.log_tail == "hello\n")).await;
    members[0].happens(ended(0, "hello\nbye\n"));
    let launch = follow.await.unwrap().unwrap();
    let second = |time: Option<Timestamp>| time.map(Timestamp::as_second);
    assert_eq!((second(launch.started), second(launch.first_rank)), (Some(995), Some(997)));
    assert_eq!(launch.log_tail, "hello\nbye\n");
    let end = launch.end.unwrap();
    assert_eq!((end.exit_code, end.trouble, second(end.at)), (0, None, Some(999)));
    assert_eq!(end.lost, [] as [&str; 0]);
    let placed: Vec<_> = end.placement.iter().map(|p| (p.host.as_str(), p.ranks.clone())).collect();
    assert_eq!(placed, [("m0", vec![0]), ("m1", vec![1])]);
    let script = members[0].script();
    let start = script.launches[0].start.as_ref().unwrap();
    assert_eq!(start.argv.last().map(String::as_str), Some("ring"));
    assert!(start.inherit_environment && start.environment.contains_key("OMPI_MCA_plm_rsh_agent"));
}

#[tokio::test]
async fn ranks_that_nobody_saw_are_a_mismatch() {
    let (members, remotes) = two().await;
    members[0].script().ranks = vec![rank(0, 1), rank(1, 1)];
    members[0].happens(ended(0, ""));
    let launch = launch::follow(&remotes, &launch_order(&["m0", "m1"], false), &|_| ()).await.unwrap();
    assert_eq!(launch.first_rank.map(Timestamp::as_second), Some(999));
    assert_eq!(launch.end.unwrap().trouble.unwrap().reason, "PlacementMismatch");
}

#[tokio::test]
async fn a_bus_error_is_told_with_its_cause() {
    let (members, remotes) = two().await;
    members[0].script().ranks = vec![rank(0, 1)];
    members[1].script().ranks = vec![wire::ObservedRank { ended: true, signal: 7, code: -1, ..rank(1, 1) }];
    members[0].happens(ended(135, ""));
    let launch = launch::follow(&remotes, &launch_order(&["m0", "m1"], false), &|_| ()).await.unwrap();
    let end = launch.end.unwrap();
    let trouble = end.trouble.unwrap();
    assert_eq!((end.exit_code, trouble.reason.as_str()), (135, "RankKilled"));
    assert!(trouble.message.contains("m1") && trouble.message.contains("/dev/shm"), "{}", trouble.message);
}

#[tokio::test]
async fn a_node_that_is_gone_at_the_end_is_the_reason() {
    let ([first, second], remotes) = two().await;
    first.script().ranks = vec![rank(0, 1)];
    drop(second);
    first.happens(ended(1, "ORTE has lost communication\n"));
    let launch = launch::follow(&remotes, &launch_order(&["m0", "m1"], false), &|_| ()).await.unwrap();
    assert_eq!(launch.log_tail, "ORTE has lost communication\n");
    let end = launch.end.unwrap();
    assert_eq!(end.lost, ["m1"]);
    assert_eq!(end.trouble.unwrap().reason, "NodeLost");
}

#[tokio::test]
async fn a_program_that_cannot_start_has_an_end() {
    let (members, remotes) = two().await;
    members[0].happens(Event::Failed(wire::ExecFailed {
        reason: "ProgramNotFound".into(),
        message: "`mpirun.openmpi` is not in PATH".into(),
    }));
    let launch = launch::follow(&remotes, &launch_order(&["m0", "m1"], false), &|_| ()).await.unwrap();
    let end = launch.end.unwrap();
    assert_eq!((end.exit_code, end.trouble.unwrap().reason.as_str()), (127, "ProgramNotFound"));
}

#[tokio::test]
async fn another_operator_attaches_and_starts_nothing_twice() {
    let (members, remotes) = two().await;
    let order = launch_order(&["m0", "m1"], false);
    members[0].happens(started(1));
    let follow = {
        let (remotes, order) = (remotes.clone(), order.clone());
        tokio::spawn(async move { launch::follow(&remotes, &order, &|_| ()).await })
    };
    until("the start", || members[0].script().started.len() == 1).await;
    follow.abort();
    members[0].script().ranks = vec![rank(0, 1)];
    members[1].script().ranks = vec![rank(1, 1)];
    members[0].happens(ended(0, ""));
    let order = launch::Order { was_running: true, ..order };
    let launch = launch::follow(&remotes, &order, &|_| ()).await.unwrap();
    assert_eq!(launch.end.unwrap().trouble, None);
    assert_eq!(members[0].script().started, ["l-1"]);
}

#[tokio::test]
async fn a_launch_that_ran_on_another_pod_is_not_started_on_this_one() {
    let (members, remotes) = two().await;
    let lost = launch::follow(&remotes, &launch_order(&["m0", "m1"], true), &|_| ()).await;
    assert_eq!(reason(lost), "LaunchUnknown");
    assert_eq!(members[0].script().started, [] as [&str; 0]);
}

#[tokio::test]
async fn a_starter_that_refuses_at_first_is_asked_again() {
    let (members, remotes) = two().await;
    members[0].script().refusals = 2;
    members[0].script().ranks = vec![rank(0, 1)];
    members[1].script().ranks = vec![rank(1, 1)];
    members[0].happens(ended(0, ""));
    let launch = launch::follow(&remotes, &launch_order(&["m0", "m1"], false), &|_| ()).await.unwrap();
    assert_eq!(launch.end.unwrap().exit_code, 0);
}

/// A path whose product of rate and delay no usual buffer holds.
fn long_and_fat() -> Network {
    let rows = |value| vec![vec![None, Some(value)], vec![Some(value), None]];
    Network {
        hosts: ["m0", "m1"].map(str::to_owned).to_vec(),
        rtt_milliseconds: [("64".to_owned(), rows(50.0))].into(),
        loss_percent: [("64".to_owned(), rows(0.0))].into(),
        bandwidth_mbps: rows(2_000.0),
        ..Network::default()
    }
}

fn tcp(mode: TcpMode) -> tune::Order {
    let tcp = Tcp { mode, profile: Some(TcpProfile::Bulk), ..VirtualClusterSpec::default().tcp() };
    tune::Order { tcp, network: Some(long_and_fat()), probes: 10, owner: "6f1e".into() }
}

fn usual_settings() -> BTreeMap<String, String> {
    let settings = [
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
        ("net.ipv4.tcp_congestion_control", "reno"),
        ("net.ipv4.tcp_slow_start_after_idle", "1"),
    ];
    settings.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

/// The reply was lost, or the operator that got it: what was written then is not what was there before.
#[tokio::test]
async fn tuned_again_the_values_from_before_are_still_known() {
    let (members, remotes) = two().await;
    for member in &members {
        member.script().settings = usual_settings();
    }
    let first = tune::apply(|| Ok(remotes.clone()), &tcp(TcpMode::Apply)).await.unwrap();
    assert!(first.changed > 0);
    let again = tune::apply(|| Ok(remotes.clone()), &tcp(TcpMode::Apply)).await.unwrap();
    assert_eq!((again.changed, again.settings), (first.changed, first.settings));
}

#[tokio::test]
async fn settings_are_written_told_and_restored() {
    let (members, remotes) = two().await;
    for member in &members {
        member.script().settings = usual_settings();
    }
    // An agent that is just being replaced.
    members[1].script().refusals = 1;
    let tuned = tune::apply(|| Ok(remotes.clone()), &tcp(TcpMode::Apply)).await.unwrap();
    assert!(tuned.changed > 0 && !tuned.settings.is_empty());
    let changed = tuned.settings.iter().find(|s| s.before != s.applied).unwrap();
    assert_eq!((changed.restored, changed.dry_run), (false, false));
    // And it is replaced once more when all is over.
    members[1].script().refusals = 1;
    let patience = Duration::from_mins(1);
    let restored = tune::restore(|| remotes.clone(), 2, "6f1e", &tuned.settings, patience).await;
    let left = |setting: &&TunedSetting| !setting.restored;
    for setting in tuned.settings.iter().filter(left) {
        assert!(restored.restored.contains(&(setting.host.clone(), setting.key.clone())), "{setting:?}");
    }
    assert!(restored.restored.contains(&(changed.host.clone(), changed.key.clone())));
}

#[tokio::test]
async fn a_node_without_an_agent_does_not_hold_up_the_release() {
    let ([first, second], remotes) = two().await;
    first.script().settings = [("net.ipv4.tcp_rmem".to_owned(), "1 2 3".to_owned())].into();
    drop(second);
    let shown = ["m0", "m1"].map(|host| TunedSetting {
        host: host.into(),
        key: "net.ipv4.tcp_rmem".into(),
        ..Default::default()
    });
    let released = tune::restore(|| remotes.clone(), 2, "6f1e", &shown, Duration::ZERO).await;
    assert_eq!(released.restored, [("m0".to_owned(), "net.ipv4.tcp_rmem".to_owned())].into());
}

fn wanted(path: &str, claim: &str, below: Option<&str>) -> Collect {
    let claim = ClaimPath { claim_name: claim.into(), path: below.map(Into::into) };
    Collect { path: path.into(), to: CollectTo { persistent_volume_claim: claim } }
}

#[test]
fn a_relative_path_needs_something_to_be_relative_to() {
    let mut run = Run {
        collect: vec![wanted("out", "results", None), wanted("/abs", "logs", Some("a/b"))],
        ..Run::default()
    };
    let failure = collect::items(&run, None).unwrap_err();
    assert!(failure.message.starts_with("spec.run.collect[0].path: out is relative"), "{}", failure.message);
    assert_eq!(collect::items(&run, Some("/opt")).unwrap()[0].path, "/opt/out");
    run.working_directory = Some("/scratch/".into());
    let items = collect::items(&run, Some("/opt")).unwrap();
    let told: Vec<_> = items.iter().map(|i| (i.pod, i.path.as_str(), i.target.as_str())).collect();
    assert_eq!(told, [(0, "/scratch/out", "/gridcast/origin"), (1, "/abs", "/gridcast/origin/a/b")]);
}

#[tokio::test]
async fn one_path_that_nobody_has_keeps_no_other_from_coming() {
    let (members, remotes) = two().await;
    // Its container was started a moment ago.
    members[0].script().refusals = 2;
    let run = Run {
        working_directory: Some("/scratch".into()),
        collect: vec![wanted("a", "x", None), wanted("missing", "y", None), wanted("b", "x", None)],
        ..Run::default()
    };
    let items = collect::items(&run, None).unwrap();
    let peers: Vec<wire::Peer> = remotes.iter().map(Remote::peer).collect();
    let failure = collect::bring(&remotes, &peers, &items).await.unwrap_err();
    assert_eq!(
        (failure.reason.as_str(), failure.message.as_str()),
        ("CollectFailed", "/scratch/missing: no node has it")
    );
    let paths: Vec<String> = members[0].script().collected.iter().map(|c| c.path.clone()).collect();
    assert_eq!(paths, ["/scratch/a", "/scratch/b"]);
    let names: Vec<String> =
        members[0].script().collected[0].members.iter().map(|m| m.name.clone()).collect();
    assert_eq!(names, ["m0", "m1"]);
}

#[test]
fn steps_can_be_tasks() {
    fn task<T: Send>(_: T) {}
    let remotes: Arc<[Remote]> = Arc::new([]);
    let order = launch_order(&[], false);
    task(launch::follow(&remotes, &order, &|_| ()));
    task(gate::open(&remotes, &self::order(&[]), &|_| ()));
}
