//! Debian's Open MPI 4 with the remote shell as its agent. Needs openmpi-bin and root.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use gridcast_proto::v1::exec_request::Request;
use gridcast_proto::v1::launch_event::Event;
use gridcast_proto::v1::{ExecStart, LaunchRequest, StopLaunchRequest};

use crate::support::{Call, Cluster, PROGRAM, alive, eventually, outcome, text, zombies_of};

/// Nodes with a hostname and temporary files of their own: Open MPI's daemons keep their sessions under both, and
/// trip over each other otherwise.
fn cluster(size: u8) -> Cluster {
    start(size, Cluster::empty(size))
}

/// Starts the nodes of an empty cluster.
pub(crate) fn start(size: u8, mut cluster: Cluster) -> Cluster {
    let scratch = cluster.path("tmp");
    std::fs::create_dir(&scratch).unwrap();
    for index in 1..=size {
        let script =
            format!("hostname h{index} && mount -t tmpfs tmpfs {} && exec \"$@\"", scratch.display());
        let mut command = cluster.serve(index, &["unshare", "--uts", "--mount", "sh", "-c", &script, "sh"]);
        cluster.start(index, &mut command);
    }
    cluster
}

pub(crate) fn mpirun(cluster: &Cluster, hosts: u8, launch: &str) -> Command {
    let mut command = Command::new("mpirun.openmpi");
    command.args(options(cluster, hosts)).env("GRIDCAST_LAUNCH", launch).envs(environment(cluster));
    cluster.settings(&mut command, 1);
    command
}

fn environment(cluster: &Cluster) -> HashMap<String, String> {
    let scratch = cluster.path("tmp").to_str().unwrap().to_owned();
    let one = |name: &str| (name.to_owned(), "1".to_owned());
    let names = ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"];
    names.map(one).into_iter().chain([("TMPDIR".to_owned(), scratch)]).collect()
}

fn options(cluster: &Cluster, hosts: u8) -> Vec<String> {
    let machinefile: PathBuf = cluster.path("machinefile");
    let lines: Vec<_> = (1..=hosts).map(|host| format!("h{host} slots=1 max_slots=1\n")).collect();
    std::fs::write(&machinefile, lines.concat()).unwrap();
    let (machinefile, processes) = (machinefile.to_str().unwrap(), hosts.to_string());
    let agent = format!("{PROGRAM} exec");
    let mut options = vec!["--hostfile", machinefile, "-np", &processes, "--mca", "plm_rsh_agent", &agent];
    // The machine's own cores do not matter.
    options.extend(["--bind-to", "none", "--mca", "oob_tcp_if_include", cluster.interface()]);
    options.into_iter().map(str::to_owned).collect()
}

pub(crate) async fn placement(cluster: &Cluster, hosts: u8, launch: &str) -> BTreeMap<u32, u8> {
    let mut placement = BTreeMap::new();
    for host in 1..=hosts {
        for rank in cluster.ranks(host, launch).await {
            assert!(rank.ended && rank.world == u32::from(hosts), "{rank:?}");
            assert_eq!(placement.insert(rank.rank, host), None, "rank {} is seen once", rank.rank);
        }
    }
    placement
}

#[tokio::test]
async fn two_ranks_run_where_the_machinefile_says() {
    let cluster = cluster(2);
    let mut command = mpirun(&cluster, 2, "l-1");
    // Neither host is this machine's name, so both daemons are started by the agent.
    command.args([
        PROGRAM,
        "rank",
        "--",
        "sh",
        "-c",
        "echo $OMPI_COMM_WORLD_RANK on $GRIDCAST_NODE '\"quoted\"'",
    ]);
    let (code, out, err) = outcome(&command.output().unwrap());
    assert_eq!(code, Some(0), "{err}");
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 on h1 \"quoted\"", "1 on h2 \"quoted\""], "{err}");
    assert_eq!(placement(&cluster, 2, "l-1").await, BTreeMap::from([(0, 1), (1, 2)]));
}

#[tokio::test]
async fn daemons_are_started_by_workers_beyond_the_radix() {
    let cluster = cluster(4);
    let mut command = mpirun(&cluster, 4, "l-2");
    command.args(["--mca", "routed_radix", "2", PROGRAM, "rank", "--", "true"]);
    let (code, _, err) = outcome(&command.output().unwrap());
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(placement(&cluster, 4, "l-2").await, BTreeMap::from([(0, 1), (1, 2), (2, 3), (3, 4)]));
}

#[tokio::test]
async fn the_code_of_a_failing_rank_comes_back() {
    let cluster = cluster(2);
    let mut command = mpirun(&cluster, 2, "l-3");
    command.args([PROGRAM, "rank", "--", "sh", "-c", "exit $((OMPI_COMM_WORLD_RANK * 7))"]);
    let (code, _, err) = outcome(&command.output().unwrap());
    assert_eq!(code, Some(7), "{err}");
}

#[tokio::test]
async fn a_host_without_a_starter_is_named() {
    let mut cluster = cluster(2);
    drop(cluster.take(2));
    let mut command = mpirun(&cluster, 2, "l-4");
    let (code, _, err) = outcome(&command.args([PROGRAM, "rank", "--", "true"]).output().unwrap());
    assert_ne!(code, Some(0));
    assert!(err.contains("h2: NoStarter: "), "{err}");
}

/// As the controller launches: `mpirun` itself is started by the first node's starter.
fn launch(cluster: &Cluster, hosts: u8, launch: &str, program: &[&str]) -> ExecStart {
    let mut argv = vec!["mpirun.openmpi".to_owned()];
    argv.extend(options(cluster, hosts));
    argv.extend([PROGRAM, "rank", "--"].into_iter().chain(program.iter().copied()).map(str::to_owned));
    ExecStart {
        argv,
        environment: environment(cluster),
        inherit_environment: true,
        directory: cluster.root.path().to_str().unwrap().to_owned(),
        launch: launch.to_owned(),
    }
}

#[tokio::test]
async fn a_launch_through_the_first_node_has_the_same_environment_everywhere() {
    let cluster = cluster(3);
    let script = "echo $OMPI_COMM_WORLD_RANK $GRIDCAST_NODE $(hostname) $COLOUR $PWD; exit 0";
    let mut start = launch(&cluster, 3, "l-5", &["sh", "-c", script]);
    start.environment.insert("COLOUR".into(), "red".into());
    let call = Call::new(cluster.client(1).await, start).await;
    call.send(Request::StdinClosed(true)).await;
    let brought = call.finish().await;
    assert_eq!((brought.code, brought.signal), (0, 0), "{}", text(&brought.stderr));
    let out = text(&brought.stdout);
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    let directory = cluster.root.path().display();
    let expected: Vec<_> = (0..3).map(|rank| format!("{rank} h{0} h{0} red {directory}", rank + 1)).collect();
    assert_eq!(lines, expected);
    assert_eq!(placement(&cluster, 3, "l-5").await, BTreeMap::from([(0, 1), (1, 2), (2, 3)]));
    eventually("nothing uncollected stays", || (1..=3).all(|node| zombies_of(cluster.pid(node)) == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_of_the_starter_s_own_ends_everywhere_when_it_is_stopped() {
    let cluster = cluster(3);
    let script = "echo rank $OMPI_COMM_WORLD_RANK; exec sleep 1000";
    let mut start = launch(&cluster, 3, "", &["sh", "-c", script]);
    start.argv.insert(1, "--tag-output".to_owned());
    let tag_hosts = ["h1", "h2", "h3"].map(str::to_owned).to_vec();
    let request =
        LaunchRequest { id: "l-7".into(), start: Some(start), tag_hosts, ..LaunchRequest::default() };
    let mut events = cluster.client(1).await.launch(request).await.unwrap().into_inner();
    let mut output = String::new();
    while !(1..=3).all(|host| output.contains(&format!("h{host}: rank {}\n", host - 1))) {
        if let Some(Event::Output(said)) = events.message().await.unwrap().unwrap().event {
            output += &text(&said.data);
        }
    }
    drop(events);
    let mut pids = Vec::new();
    for node in 1..=3 {
        pids.extend(cluster.ranks(node, "l-7").await.iter().map(|rank| rank.pid));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(pids.len() == 3 && pids.iter().all(|pid| alive(*pid)), "it goes on without its caller");
    let stop = StopLaunchRequest { id: "l-7".into(), grace_millis: 30_000 };
    assert!(cluster.client(1).await.stop_launch(stop).await.unwrap().into_inner().was_running);
    eventually("every rank ends", || !pids.iter().any(|pid| alive(*pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_ends_everywhere_with_its_caller() {
    let cluster = cluster(3);
    let start = launch(&cluster, 3, "l-6", &["sleep", "1000"]);
    let mut call = Call::new(cluster.client(1).await, start).await;
    call.started().await;
    let mut pids = Vec::new();
    for node in 1..=3 {
        while cluster.ranks(node, "l-6").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        pids.push(cluster.ranks(node, "l-6").await[0].pid);
    }
    assert!(pids.iter().all(|pid| alive(*pid)));
    drop(call);
    eventually("every rank ends", || !pids.iter().any(|pid| alive(*pid)));
}
