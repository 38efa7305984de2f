//! What the agents of Kubernetes nodes do for an operator, their pods and a mount helper, and for nobody else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use gridcast_proto::v1::agent_client::AgentClient;
use gridcast_proto::v1::broadcast_event::Event;
use gridcast_proto::v1::broadcasts_client::BroadcastsClient;
use gridcast_proto::v1::datasets_client::DatasetsClient;
use gridcast_proto::v1::push_message::Message;
use gridcast_proto::v1::relay_client::RelayClient;
use gridcast_proto::v1::sink_client::SinkClient;
use gridcast_proto::v1::{
    AcquireRequest, ApplySettingsRequest, DescribeRequest, DropRequest, ExpectRequest, FetchRequest,
    FollowRequest, Hop, InspectRequest, ListDatasetsRequest, Peer, Plan, PrepareReply, PrepareRequest,
    ProbeBandwidthRequest, ProbeLatencyRequest, PushMessage, PushOpen, ReleaseReply, ReleaseRequest,
    RestoreSettingsRequest, Setting, StartBroadcastRequest, Tree, WatchRequest,
};
use nix::sys::signal::Signal;
use tonic::{Code, Status};

use crate::fleet::{BROADCAST, Fleet, PODS, node};

const IDLE: &str = "net.ipv4.tcp_slow_start_after_idle";
const AGENT_0: (&str, &str) = ("node-0", "gridcast:agent");

fn prepare(fleet: &Fleet, index: usize, source: &str) -> PrepareReply {
    let ask = PrepareRequest {
        namespace: "science".into(),
        name: "ics".into(),
        uid: BROADCAST.into(),
        path: String::new(),
        source: source.into(),
    };
    fleet.control(&node(index), async |channel| {
        DatasetsClient::new(channel).prepare(ask).await.unwrap().into_inner()
    })
}

fn release(fleet: &Fleet, index: usize) -> ReleaseReply {
    let ask = ReleaseRequest { uid: BROADCAST.into(), keep_data: false };
    fleet.control(&node(index), async |channel| {
        DatasetsClient::new(channel).release(ask).await.unwrap().into_inner()
    })
}

/// From `source` to the second node.
fn order(source: &Peer, path: &Path, target: &str) -> StartBroadcastRequest {
    let hops = vec![Hop { from: source.name.clone(), to: "node-1".into() }];
    StartBroadcastRequest {
        id: format!("{BROADCAST}-1"),
        source: Some(source.clone()),
        source_path: path.display().to_string(),
        members: vec![node(1)],
        target: target.to_owned(),
        store_at_source: false,
        plan: Some(Plan { strategy: "test".into(), trees: vec![Tree { rate_mbps: 100.0, hops }] }),
        chunk_bytes: 0,
    }
}

/// The last event.
fn stage(fleet: &Fleet, source: &Peer, order: StartBroadcastRequest) -> Event {
    fleet.control(source, async |channel| {
        let mut events = BroadcastsClient::new(channel).start(order).await.unwrap().into_inner();
        let mut last = None;
        while let Some(event) = events.message().await.unwrap() {
            last = event.event;
        }
        last.unwrap()
    })
}

fn finished(event: Event) -> String {
    let Event::Finished(finished) = event else { panic!("{event:?}") };
    finished.digest
}

fn fill(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    let grid = directory.join("grid");
    fs::write(&grid, vec![7; 3_000_000]).unwrap();
    let program = directory.join("program");
    fs::write(&program, "").unwrap();
    // Nobody may read it but who may read all, and nothing may be added.
    for (path, mode) in [(grid.as_path(), 0o0), (&program, 0o6755), (directory, 0o555)] {
        std::os::unix::fs::chown(path, Some(100_000), Some(100_000)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn acquire(volume: &str, timeout_millis: u32) -> AcquireRequest {
    AcquireRequest {
        namespace: "science".into(),
        name: "ics".into(),
        volume_id: volume.into(),
        pod_uid: PODS[1].into(),
        timeout_millis,
        target: "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/v/mount".into(),
    }
}

#[test]
fn pods_are_measured_and_tuned_from_inside_over_their_own_network() {
    let mut fleet = Fleet::new();
    let facts = |index: usize| {
        fleet.control(&node(index), async |channel| {
            let ask = DescribeRequest { pod: PODS[index].into() };
            AgentClient::new(channel).describe(ask).await.unwrap().into_inner()
        })
    };
    for index in 0..2 {
        assert_eq!((facts(index).name, facts(index).probe_port), (format!("node-{index}"), 7413));
    }
    let latency = ProbeLatencyRequest {
        peer: Some(node(1)),
        payload_bytes: 64,
        count: 10,
        interval_micros: 1_000,
        timeout_millis: 1_000,
        pod: PODS[0].into(),
    };
    let bandwidth = ProbeBandwidthRequest {
        peer: Some(node(1)),
        duration_millis: 200,
        omit_millis: 0,
        streams: 1,
        pod: PODS[0].into(),
    };
    let before = counters(&fleet.pods[1]);
    let (rtts, mbps) = fleet.control(&node(0), async |channel| {
        let mut agent = AgentClient::new(channel);
        let rtts = agent.probe_latency(latency).await.unwrap().into_inner().rtt_nanos.len();
        (rtts, agent.probe_bandwidth(bandwidth).await.unwrap().into_inner().mbps)
    });
    assert_eq!(rtts, 10);
    assert!(mbps > 10.0, "{mbps}");
    assert!(counters(&fleet.pods[1]) > before + 200_000, "it went over the pods' network");

    let settings = vec![Setting { key: IDLE.into(), value: "0".into() }];
    let ask = ApplySettingsRequest { owner: "run".into(), settings, dry_run: false, pod: PODS[1].into() };
    let applied = fleet.control(&node(1), async |channel| {
        AgentClient::new(channel).apply_settings(ask).await.unwrap().into_inner().settings
    });
    assert!(applied[0].error.is_empty(), "{applied:?}");
    let value = |fleet: &Fleet| {
        let path = format!("/proc/sys/{}", IDLE.replace('.', "/"));
        [&fleet.pods[1], &fleet.pods[0], &fleet.nodes[1]]
            .map(|place| place.run(&["cat", &path]).trim().to_owned())
    };
    assert_eq!(value(&fleet), ["0", "1", "1"]);
    let metrics = fleet.metrics(1);
    assert_eq!((metrics["gridcast_agent_settings_applied_total"], metrics["gridcast_agent_pods"]), (1, 1));
    assert_eq!(fleet.metrics(0)["gridcast_agent_bandwidth_probes_total"], 1);

    fleet.agents.remove(1).kill();
    fleet.agents.push(fleet.agent(1));
    let restored = fleet.control(&node(1), async |channel| {
        let mut agent = AgentClient::new(channel);
        // A pod that has gone took its settings along.
        let gone = RestoreSettingsRequest { owner: "run".into(), pod: "cccccccc".into() };
        assert_eq!(agent.restore_settings(gone).await.unwrap().into_inner().settings, []);
        let ask = RestoreSettingsRequest { owner: "run".into(), pod: PODS[1].into() };
        agent.restore_settings(ask).await.unwrap().into_inner().settings
    });
    assert!(restored.len() == 1 && restored[0].restored, "{restored:?}");
    assert_eq!(value(&fleet), ["1", "1", "1"]);
}

/// Bytes that a namespace has received.
fn counters(namespace: &crate::nodes::Namespace) -> u64 {
    let text = namespace.run(&["cat", "/proc/thread-self/net/dev"]);
    let line = text.lines().find(|line| line.trim_start().starts_with("eth0:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn pods_that_cannot_be_worked_in_are_named() {
    let fleet = Fleet::new();
    let status = fleet.control(&node(0), async |channel| {
        let ask = DescribeRequest { pod: PODS[1].into() };
        AgentClient::new(channel).describe(ask).await.unwrap_err()
    });
    assert_eq!(status.code(), Code::NotFound);
    assert!(
        status.message().starts_with(&format!("PodNotFound: pod {} has no process", PODS[1])),
        "{status}"
    );
    let status = fleet.control(&node(0), async |channel| {
        let peer = Some(Peer { pod: "elsewhere".into(), ..node(1) });
        let ask = ProbeBandwidthRequest {
            peer,
            duration_millis: 100,
            omit_millis: 0,
            streams: 1,
            pod: PODS[0].into(),
        };
        AgentClient::new(channel).probe_bandwidth(ask).await.unwrap_err()
    });
    assert!(
        status.message().contains("agent node-1 expects no probe of ring-node-1: PodNotFound"),
        "{status}"
    );
}

#[test]
fn a_dataset_is_staged_waited_for_mounted_and_given_back() {
    let mut fleet = Fleet::new();
    fill(&fleet.path("exports/ics"));
    let target = prepare(&fleet, 1, "node-0").target;
    assert_eq!(Path::new(&target), fleet.path("state-1/data/science/ics"));
    let (path, digest) = std::thread::scope(|scope| {
        let pod = scope.spawn(|| {
            fleet.nodes[1].enter(async || {
                let mut mounts = fleet.mounts(1).await;
                mounts.acquire(acquire("v1", 60_000)).await.unwrap().into_inner().path
            })
        });
        let digest = finished(stage(&fleet, &node(0), order(&node(0), &fleet.path("exports/ics"), &target)));
        (pod.join().unwrap(), digest)
    });
    assert_eq!(path, target);
    assert_eq!(fs::metadata(Path::new(&path).join("grid")).unwrap().len(), 3_000_000);
    let metrics = fleet.metrics(1);
    assert_eq!(metrics["gridcast_agent_datasets{state=\"verified\"}"], 1);
    assert!(metrics["gridcast_agent_received_bytes_total"] >= 3_000_000, "{metrics:?}");
    assert!(fleet.metrics(0)["gridcast_agent_sent_bytes_total"] >= 3_000_000);

    fleet.agents.remove(1).kill();
    fleet.agents.push(fleet.agent(1));
    let again = prepare(&fleet, 1, "node-0");
    assert_eq!((again.verified, again.digest, again.size_bytes, again.files), (true, digest, 3_000_000, 2));
    let kept = release(&fleet, 1);
    assert_eq!((kept.released, kept.pods), (false, vec![PODS[1].to_owned()]));
    assert!(Path::new(&target).exists());
    fleet.nodes[1].enter(async || {
        let mut mounts = fleet.mounts(1).await;
        let status = mounts.acquire(acquire("v2", 1)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        mounts.drop(DropRequest { volume_id: "v1".into() }).await.unwrap();
    });
    assert!(!Path::new(&target).exists());
    assert!(release(&fleet, 1).released);
    let left: Vec<_> = fs::read_dir(fleet.path("state-1/data")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_source_itself_keeps_a_copy_that_its_pods_can_mount() {
    let fleet = Fleet::new();
    fill(&fleet.path("exports/ics"));
    let target = prepare(&fleet, 0, "node-0").target;
    let alone = StartBroadcastRequest {
        members: Vec::new(),
        store_at_source: true,
        plan: Some(Plan::default()),
        ..order(&node(0), &fleet.path("exports/ics"), &target)
    };
    let digest = finished(stage(&fleet, &node(0), alone));
    let again = prepare(&fleet, 0, "node-0");
    assert_eq!((again.verified, again.digest), (true, digest));
}

#[test]
fn a_source_pod_brings_its_dataset_and_no_other() {
    let fleet = Fleet::new();
    let _pod = fleet.source_pod();
    let source = Peer { name: BROADCAST.into(), address: "10.42.0.1".into(), port: 7421, ..Peer::default() };
    // What a source pod mounts lies anywhere: it is in a pod of the data's own namespace.
    fill(&fleet.path("volume"));
    let target = prepare(&fleet, 1, BROADCAST).target;
    let opened = fleet.control(&source, async |channel| {
        let ask = InspectRequest { source_path: fleet.path("volume").display().to_string() };
        BroadcastsClient::new(channel).inspect(ask).await.unwrap().into_inner()
    });
    assert_eq!((opened.size_bytes, opened.files, opened.entries), (3_000_000, 2, 3));
    let digest = finished(stage(&fleet, &source, order(&source, &fleet.path("volume"), &target)));
    assert_eq!(prepare(&fleet, 1, BROADCAST).digest, digest);
    assert!(release(&fleet, 1).released);

    // The node was told that somebody else brings it.
    let target = prepare(&fleet, 1, "node-0").target;
    let Event::Failed(failed) = stage(&fleet, &source, order(&source, &fleet.path("volume"), &target)) else {
        panic!("it was let in");
    };
    assert_eq!((failed.node.as_str(), failed.reason.as_str()), ("node-1", "NotPermitted"), "{failed:?}");
    // And whoever is not the operator drives no source pod.
    for who in [AGENT_0, ("x", "gridcast:source"), ("x", "gridcast:member"), ("x", "")] {
        let ask = InspectRequest { source_path: fleet.path("volume").display().to_string() };
        let status =
            fleet.call(who, &source, async |channel| BroadcastsClient::new(channel).inspect(ask).await);
        assert_eq!(status.unwrap_err().code(), Code::PermissionDenied, "{who:?}");
    }
}

#[test]
fn a_node_reads_only_below_its_source_roots_and_collects_nothing() {
    let fleet = Fleet::new();
    fill(&fleet.path("private"));
    std::os::unix::fs::symlink(fleet.path("private"), fleet.path("exports/way-out")).unwrap();
    let target = prepare(&fleet, 1, "node-0").target;
    for path in ["private", "exports/way-out", "exports/way-out/grid"] {
        let ask = InspectRequest { source_path: fleet.path(path).display().to_string() };
        let status =
            fleet.control(&node(0), async |channel| BroadcastsClient::new(channel).inspect(ask).await);
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("given by --source-root ("), "{status}");
        let last = stage(&fleet, &node(0), order(&node(0), &fleet.path(path), &target));
        assert!(matches!(&last, Event::Failed(failed) if failed.reason == "SourceForbidden"), "{last:?}");
    }
}

/// Each call, and what became of it.
async fn all_calls(channel: tonic::transport::Channel, follow: FollowRequest) -> Vec<(&'static str, Code)> {
    let code = |outcome: Result<(), Status>| outcome.err().map_or(Code::Ok, |status| status.code());
    let mut agent = AgentClient::new(channel.clone());
    let mut broadcasts = BroadcastsClient::new(channel.clone());
    let mut datasets = DatasetsClient::new(channel.clone());
    let mut sink = SinkClient::new(channel.clone());
    let mut relay = RelayClient::new(channel);
    let ask = ExpectRequest { streams: 1, duration_millis: 100, ..ExpectRequest::default() };
    let inspect = InspectRequest { source_path: "/nonexistent".into() };
    let open = PushOpen { id: "unknown".into(), tree: 0, from: "node-0".into(), single_file: false };
    let push = tokio_stream::iter([PushMessage { message: Some(Message::Open(open)) }]);
    let push = tokio::time::timeout(Duration::from_millis(300), relay.push(push)).await;
    vec![
        ("Describe", code(agent.describe(DescribeRequest::default()).await.map(drop))),
        ("Watch", code(agent.watch(WatchRequest {}).await.map(drop))),
        ("ProbeLatency", code(agent.probe_latency(ProbeLatencyRequest::default()).await.map(drop))),
        ("ProbeBandwidth", code(agent.probe_bandwidth(ProbeBandwidthRequest::default()).await.map(drop))),
        ("ApplySettings", code(agent.apply_settings(ApplySettingsRequest::default()).await.map(drop))),
        ("RestoreSettings", code(agent.restore_settings(RestoreSettingsRequest::default()).await.map(drop))),
        ("Start", code(broadcasts.start(StartBroadcastRequest::default()).await.map(drop))),
        ("Inspect", code(broadcasts.inspect(inspect).await.map(drop))),
        ("Collect", code(broadcasts.collect(gridcast_proto::v1::CollectRequest::default()).await.map(drop))),
        ("Prepare", code(datasets.prepare(PrepareRequest::default()).await.map(drop))),
        ("Release", code(datasets.release(ReleaseRequest::default()).await.map(drop))),
        ("List", code(datasets.list(ListDatasetsRequest {}).await.map(drop))),
        ("Expect", code(sink.expect(ask).await.map(drop))),
        ("Follow", code(relay.follow(follow).await.map(drop))),
        ("Fetch", code(relay.fetch(FetchRequest { path: "/nonexistent".into() }).await.map(drop))),
        // An agent that is admitted waits for the coordinator to call, too.
        ("Push", push.map_or(Code::Ok, |outcome| code(outcome.map(drop)))),
    ]
}

#[test]
fn each_role_gets_what_is_its_and_nobody_else_anything() {
    let fleet = Fleet::new();
    let follow = |source: &str| FollowRequest {
        source: source.into(),
        self_: "node-1".into(),
        ..FollowRequest::default()
    };
    let allowed = |who: (&str, &str), source: &str| {
        let calls = fleet.call(who, &node(1), async |channel| all_calls(channel, follow(source)).await);
        let refused = |code: &Code| *code == Code::PermissionDenied;
        calls.into_iter().filter(|(_, code)| !refused(code)).map(|(call, _)| call).collect::<Vec<_>>()
    };
    let controller = allowed(("controller", "gridcast:controller"), "controller");
    // Not `Collect`, since a node keeps no results; not `Inspect` of what lies outside of the roots; not `Push` in another's
    // name.
    let all = [
        "Describe",
        "Watch",
        "ProbeLatency",
        "ProbeBandwidth",
        "ApplySettings",
        "RestoreSettings",
        "Start",
        "Prepare",
        "Release",
        "List",
        "Expect",
        "Follow",
        "Fetch",
    ];
    assert_eq!(controller, all);
    assert_eq!(allowed(AGENT_0, "node-0"), ["Expect", "Follow", "Push"]);
    assert_eq!(allowed(AGENT_0, "node-1"), ["Expect", "Push"], "in another's name");
    assert_eq!(allowed(("node-2", "gridcast:agent"), "node-2"), ["Expect", "Follow"], "in another's name");
    assert_eq!(allowed((BROADCAST, "gridcast:source"), BROADCAST), ["Follow"]);
    for stranger in [("node-0", "gridcast:member"), ("node-0", ""), ("controller", "gridcast:root")] {
        assert_eq!(allowed(stranger, "node-0"), [""; 0], "{stranger:?}");
    }
}

#[test]
fn an_agent_is_of_use_when_it_has_a_certificate_and_ends_within_five_seconds() {
    let mut fleet = Fleet::prepare();
    let mut early = fleet.command(1).stderr(std::process::Stdio::null()).spawn().unwrap();
    let page = |fleet: &Fleet, page: &str| {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match fleet.get(1, page) {
                Some((status, _)) => return status,
                None => assert!(Instant::now() < deadline, "nobody answers"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    assert_eq!(page(&fleet, "/healthz"), "HTTP/1.1 200 OK");
    assert_eq!(page(&fleet, "/readyz"), "HTTP/1.1 503 Service Unavailable");
    fleet.start_operator();
    let deadline = Instant::now() + Duration::from_secs(30);
    while page(&fleet, "/readyz") != "HTTP/1.1 200 OK" {
        assert!(Instant::now() < deadline, "never ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    let left = fleet.metrics(1)["gridcast_agent_certificate_seconds"];
    assert!((86_000..=86_400).contains(&left), "{left}");

    // Whoever waits is told at once.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(early.id()).unwrap());
    let fleet = &fleet;
    let status = fleet.control(&node(1), async |channel| {
        let mut events = AgentClient::new(channel).watch(WatchRequest {}).await.unwrap().into_inner();
        events.message().await.unwrap();
        let mut mounts = fleet.mounts(1).await;
        let waiting = tokio::spawn(async move { mounts.acquire(acquire("v1", 100_000)).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
        waiting.await.unwrap().unwrap_err()
    });
    let stopped = Instant::now();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(early.wait().unwrap().success());
    assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
    // It had nothing to remember.
    let left: Vec<_> = fs::read_dir(fleet.path("state-1")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
