//! Nodes that have no address but one of IPv6, as in a cluster of that family alone. Needs openmpi-bin and root.

use std::process::Command;

use gridcast_proto::v1::starter_client::StarterClient;
use gridcast_proto::v1::{CheckRequest, ConfigureRequest, Host};

use crate::mpirun::{mpirun, placement, start};
use crate::support::{Cluster, PROGRAM, outcome};

/// Runs `test` in a network namespace whose only interface beside loopback has `fd00::1`, `fd00::2` and so on, and not one
/// address of IPv4.
fn without_ipv4<T: Future<Output = ()>>(test: impl FnOnce() -> T + Send + 'static) {
    let thread = std::thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("tests run as root");
        for line in [
            "link set lo up",
            "link add eth0 type veth peer name eth1",
            "link set eth1 up",
            "link set eth0 up",
            "addr add fd00::1/64 dev eth0 nodad",
            "addr add fd00::2/64 dev eth0 nodad",
        ] {
            let done = Command::new("ip").args(line.split(' ')).output().unwrap();
            assert!(done.status.success(), "ip {line}: {done:?}");
        }
        // Its one thread is in the namespace.
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
    });
    thread.join().unwrap();
}

#[test]
fn the_gate_opens_and_mpirun_finds_its_way() {
    without_ipv4(|| async {
        let cluster = start(2, Cluster::empty_at(2, "fd00::"));
        let hosts: Vec<Host> =
            [1, 2].map(|index| Host { name: format!("h{index}"), address: format!("fd00::{index}") }).into();
        let mut client: StarterClient<_> = cluster.client(1).await;
        let configure = ConfigureRequest { hosts: hosts.clone(), ..ConfigureRequest::default() };
        client.configure(configure).await.unwrap();
        assert!(cluster.hosts_text().contains("fd00::2\th2"), "{}", cluster.hosts_text());
        let check = CheckRequest { peers: hosts, port: cluster.port.into(), ..CheckRequest::default() };
        let problems = client.check(check).await.unwrap().into_inner().problems;
        assert_eq!(problems, []);

        let mut command = mpirun(&cluster, 2, "l-6");
        command.args([PROGRAM, "rank", "--", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK on $GRIDCAST_NODE"]);
        let (code, out, err) = outcome(&command.output().unwrap());
        assert_eq!(code, Some(0), "{err}");
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0 on h1", "1 on h2"]);
        assert_eq!(placement(&cluster, 2, "l-6").await, [(0, 1), (1, 2)].into());
    });
}
