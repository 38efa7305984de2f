//! Debian's Open MPI 4 with the remote shell as its agent. Needs openmpi-bin and root.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Cluster, PROGRAM, outcome};

/// Nodes with a hostname and temporary files of their own: Open MPI's daemons keep their sessions under both, and
/// trip over each other otherwise.
fn cluster(size: u8) -> Cluster {
    let mut cluster = Cluster::empty(size);
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

fn mpirun(cluster: &Cluster, hosts: u8, launch: &str) -> Command {
    let machinefile: PathBuf = cluster.path("machinefile");
    let lines: Vec<_> = (1..=hosts).map(|host| format!("h{host} slots=1 max_slots=1\n")).collect();
    std::fs::write(&machinefile, lines.concat()).unwrap();
    let mut command = Command::new("mpirun.openmpi");
    command.arg("--hostfile").arg(&machinefile).args(["-np", &hosts.to_string()]);
    command.args(["--mca", "plm_rsh_agent", &format!("{PROGRAM} exec")]);
    // All on loopback, no network to choose; the machine's own cores do not matter.
    command.args(["--mca", "oob_tcp_if_include", "lo", "--bind-to", "none"]);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("GRIDCAST_LAUNCH", launch).env("TMPDIR", cluster.path("tmp"));
    cluster.settings(&mut command, 1);
    command
}

async fn placement(cluster: &Cluster, hosts: u8, launch: &str) -> BTreeMap<u32, u8> {
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
