//! Real nodes, as root: what they see, what they share, what remains of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Nodes, eventually, log, spec};
use gridcast_lab::Lifetime;
use gridcast_lab::node::{self, Bind, Node, NodeError};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const NOWHERE: &str = "/opt/gridcast-test-xyz";

/// The machine's mounts in a directory. All that a node mounts before it changes its root is below its root's.
fn mounts_in(directory: &Path) -> Vec<String> {
    let directory = directory.to_str().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(directory)).map(str::to_owned).collect()
}

fn pid_exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn nodes_have_names_and_directories_of_their_own() {
    let nodes = Nodes::start(&["alpha", "beta"], |_| {});
    assert_eq!(nodes.says(0, "hostname"), "alpha");
    assert_eq!(nodes.says(1, "hostname; cat /proc/sys/kernel/hostname"), "beta\nbeta");
    nodes.says(0, "echo mine > /data/file");
    assert_eq!(nodes.says(1, "ls /data"), "");
    assert_eq!(nodes.says(0, "cat /data/file"), "mine");
    assert_eq!(fs::read_to_string(nodes.state.path().join("alpha/data/file")).unwrap(), "mine\n");
    assert!(!Path::new("/data").exists(), "nothing is made on the machine's root");
}

#[test]
fn a_node_sees_its_processes_memory_and_interfaces_only() {
    let nodes = Nodes::start(&["alpha"], |_| {});
    // PID 1, and the shell that asks (it has no child: `echo` is its own).
    assert_eq!(nodes.says(0, "echo /proc/[0-9]*"), "/proc/1 /proc/2");
    assert_eq!(nodes.says(0, "cat /proc/1/comm"), "cat");
    assert_eq!(nodes.says(0, "ls /dev/shm /sys/class/net"), "/dev/shm:\n\n/sys/class/net:\nlo");
    assert_eq!(nodes.says(0, "cat /sys/class/net/lo/flags"), "0x9", "loopback is up");
    assert_eq!(nodes.says(0, "stat -f -c '%b %s' /dev/shm | { read b s; echo $((b * s)); }"), "1048576");
    assert_eq!(
        nodes.says(0, "echo x > /dev/null; tr -d '\\n' < /dev/null; [ -d /sys/fs/cgroup ] && echo ok"),
        "ok"
    );
    assert_eq!(nodes.says(0, "pwd"), std::env::current_dir().unwrap().display().to_string());
}

#[test]
fn mount_paths_appear_in_the_node_and_nowhere_else() {
    let nodes = Nodes::start(&["alpha"], |spec| {
        let state = spec.root.parent().unwrap().to_path_buf();
        let make = |name: &str| {
            let path = state.join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        fs::write(state.join("hosts"), "10.42.0.1 alpha\n").unwrap();
        spec.private.push((PathBuf::from(NOWHERE).join("in"), make("in")));
        spec.private.push((PathBuf::from("/data/ics"), make("ics")));
        spec.private.push((PathBuf::from("/usr/share/gridcast-test-xyz"), make("share")));
        spec.private.push((PathBuf::from("/srv"), make("srv")));
        let bind =
            |target: &str| Bind { source: state.join("hosts"), target: target.into(), read_only: true };
        spec.binds.extend([
            bind("/etc/hosts"),
            bind("/gridcast/machinefile"),
            bind("/etc/gridcast-test-xyz/hosts"),
        ]);
    });
    assert_eq!(mounts_in(nodes.state.path()), [""; 0], "the machine's mounts are as they were");
    nodes.says(0, &format!("echo 1 > {NOWHERE}/in/a; echo 2 > /data/ics/b; echo 3 > /srv/c"));
    let state = nodes.state.path().join("alpha");
    for (file, content) in [("in/a", "1\n"), ("ics/b", "2\n"), ("srv/c", "3\n")] {
        assert_eq!(fs::read_to_string(state.join(file)).unwrap(), content);
    }
    for path in [NOWHERE, "/data", "/usr/share/gridcast-test-xyz", "/etc/gridcast-test-xyz", "/gridcast"] {
        assert!(!Path::new(path).exists(), "{path} is not on the machine");
    }
    for file in ["/etc/hosts", "/gridcast/machinefile", "/etc/gridcast-test-xyz/hosts"] {
        assert_eq!(nodes.says(0, &format!("cat {file}")), "10.42.0.1 alpha");
        assert!(!nodes.shell(0, &format!("echo x >> {file}")).output().unwrap().status.success(), "{file}");
    }
    for directory in ["/opt", "/etc", "/usr/share"] {
        let count = fs::read_dir(directory).unwrap().count() + usize::from(directory != "/etc");
        let here = nodes.says(0, &format!("ls -A {directory} | wc -l"));
        let count = count + usize::from(directory == "/etc");
        assert_eq!(here, count.to_string(), "{directory} shows all the machine's entries and one more");
    }
}

#[test]
fn programs_of_the_machine_run_in_a_node() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("program");
    fs::write(&program, "#!/bin/sh\necho \"$(hostname) $GREETING $1\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let nodes = Nodes::start(&["alpha"], |_| {});
    let mut command = node::command_in(nodes.nodes[0].pid(), "/data", &program);
    let output = command.arg("there").env("GREETING", "hello").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "alpha hello there\n");
    let output = node::command_in(nodes.nodes[0].pid(), "/data", "pwd").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "/data\n");
}

#[test]
fn ends_of_programs_come_through() {
    let nodes = Nodes::start(&["alpha"], |_| {});
    let status = |script: &str| nodes.shell(0, script).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status("exit 7").code(), Some(7));
    assert_eq!(status("kill -SEGV $$").signal(), Some(Signal::SIGSEGV as i32));
    assert_eq!(status("kill -KILL $$").signal(), Some(Signal::SIGKILL as i32));
    let pid = nodes.nodes[0].pid();
    let code = |mut command: Command| command.stderr(Stdio::null()).status().unwrap().code();
    assert_eq!(code(node::command(pid, "/no/such/program")), Some(127));
    assert_eq!(code(node::command(pid, "/etc/passwd")), Some(126));
    assert_eq!(code(node::command(i32::MAX, "/bin/true")), Some(125));
}

#[test]
fn signals_reach_programs() {
    let nodes = Nodes::start(&["alpha"], |_| {});
    let mut child = nodes
        .shell(0, "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.02; done")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "caught");
    assert_eq!(child.wait().unwrap().code(), Some(3));

    let mut child = nodes.shell(0, "echo ready; exec sleep 1000").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    child.kill().unwrap();
    assert!(lines.next().is_none(), "the program dies with its helper and closes its output");
    child.wait().unwrap();
    eventually("the program is gone", || nodes.says(0, "echo /proc/[0-9]*").split(' ').count() == 2);
}

#[test]
fn directories_can_be_bound_later() {
    let nodes = Nodes::start(&["alpha", "beta"], |_| {});
    let pid = nodes.nodes[0].pid();
    nodes.says(0, "mkdir /data/staged /data/seen; echo x > /data/staged/file");
    node::bind(pid, Path::new("/data/staged"), Path::new("/data/seen"), true).unwrap();
    assert_eq!(nodes.says(0, "cat /data/seen/file"), "x");
    assert!(!nodes.shell(0, "touch /data/seen/other 2> /dev/null").status().unwrap().success());
    nodes.says(0, "touch /data/staged/other");
    assert_eq!(mounts_in(nodes.state.path()), [""; 0]);
    assert!(node::bind(pid, Path::new("/data/staged"), Path::new("/data/none"), true).is_err());
}

#[test]
fn connections_are_made_in_the_node() {
    let nodes = Nodes::start(&["alpha"], |_| {});
    let pid = nodes.nodes[0].pid();
    let listener = node::in_network(pid, || TcpListener::bind("127.0.0.1:7411")).unwrap();
    let address = listener.local_addr().unwrap();
    let mut stream = node::connect(pid, address, Duration::from_secs(1)).unwrap();
    stream.write_all(b"hello").unwrap();
    drop(stream);
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    drop(listener);
    assert!(node::connect(pid, address, Duration::from_secs(1)).is_err());
    assert!(node::connect(i32::MAX, address, Duration::from_secs(1)).is_err());
}

#[test]
fn nothing_remains_of_a_stopped_node() {
    let mut nodes = Nodes::start(&["alpha"], |_| {});
    let mut program = nodes.shell(0, "sleep 1000").spawn().unwrap();
    let pid = nodes.nodes[0].pid();
    assert_eq!(nodes.nodes[0].stop().unwrap().signal(), Some(Signal::SIGKILL as i32));
    assert!(!pid_exists(pid));
    assert!(!program.wait().unwrap().success());
    assert_eq!(mounts_in(nodes.state.path()), [""; 0]);
    assert_eq!(fs::read_dir(nodes.state.path().join("alpha/root")).unwrap().count(), 0);
}

#[test]
fn a_node_ends_with_its_lifetime_even_if_its_first_process_does_not_care() {
    let nodes = Nodes::start(&["alpha"], |_| {});
    let careless = Nodes::start(&["beta"], |spec| spec.init = vec!["/bin/sleep".into(), "1000".into()]);
    for Nodes { mut nodes, lifetime, state: _state } in [nodes, careless] {
        drop(lifetime);
        eventually("the node ends", || nodes[0].try_wait().unwrap().is_some());
        assert!(!pid_exists(nodes[0].pid()));
    }
}

#[test]
fn a_node_ends_when_its_owner_or_its_keeper_is_killed() {
    let state = tempfile::tempdir().unwrap();
    for victim in ["owner", "keeper"] {
        let mut spec = spec(state.path(), victim, 1);
        // It would not notice the end of its input.
        spec.init = vec!["/bin/sleep".into(), "1000".into()];
        let file = state.path().join("spec.json");
        fs::write(&file, serde_json::to_vec(&spec).unwrap()).unwrap();
        let mut owner = Command::new(env!("CARGO_BIN_EXE_gridcast-lab"))
            .args([Path::new("node"), &file])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(owner.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let pid: i32 = line.trim().parse().unwrap();
        assert!(pid_exists(pid));
        if victim == "owner" {
            owner.kill().unwrap();
        } else {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let keeper = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
            kill(Pid::from_raw(keeper), Signal::SIGKILL).unwrap();
        }
        eventually("PID 1 is gone", || !pid_exists(pid));
        drop(owner.stdin.take());
        owner.wait().unwrap();
    }
}

#[test]
fn failures_name_step_and_path_and_leave_nothing() {
    let state = tempfile::tempdir().unwrap();
    let lifetime = Lifetime::new().unwrap();
    let attempt = |adapt: &dyn Fn(&mut node::NodeSpec)| {
        let mut spec = spec(state.path(), "alpha", 1);
        adapt(&mut spec);
        Node::start(&spec, lifetime.watch().unwrap(), log(state.path())).unwrap_err()
    };
    let error = attempt(&|spec| spec.init = vec!["/no/such/starter".into()]);
    assert!(matches!(&error, NodeError::Setup { path, .. } if path == "/no/such/starter"), "{error}");
    assert_eq!(error.reason(), "NodeSetupFailed");
    let error =
        attempt(&|spec| spec.private.push(("/scratch".into(), "/no/such/backing".into()))).to_string();
    assert!(
        error.starts_with("node alpha: cannot find the source of a mount at /no/such/backing"),
        "{error}"
    );
    let error =
        attempt(&|spec| spec.private.push(("/etc/passwd/x".into(), spec.private[0].1.clone()))).to_string();
    assert!(error.contains("/etc/passwd"), "{error}");
    let error = attempt(&|spec| spec.private.push(("/dev/x".into(), spec.private[0].1.clone())));
    assert_eq!(error.reason(), "NodeInvalid");
    assert_eq!(mounts_in(state.path()), [""; 0]);
}
