//! `gridcast-starter exec`: what a launcher finds where it expects ssh.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Authority, Cluster, PROGRAM, alive, eventually, outcome, text};

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    outcome(&command.output().unwrap())
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// Waits for a PID that the remote command writes to a file.
fn pid_in(file: &std::path::Path) -> i64 {
    let mut pid = None;
    eventually("the command has started", || {
        pid = std::fs::read_to_string(file).ok().filter(|text| text.ends_with('\n'));
        pid.is_some()
    });
    pid.unwrap().trim().parse().unwrap()
}

#[test]
fn arguments_are_joined_and_run_by_a_shell() {
    let cluster = Cluster::new(2);
    let line = ["-x", "-o", "BatchMode=yes", "h2", "echo", "'a  b'", "\"$GRIDCAST_NODE\"", ";", "exit", "3"];
    assert_eq!(run(&mut cluster.exec(&line)), (Some(3), "a  b h2\n".into(), String::new()));
    let line = ["h1", r#"printf '%s|' "x y" 'it'"'"'s' \"q\" -n; echo gone >&2"#];
    assert_eq!(run(&mut cluster.exec(&line)), (Some(0), "x y|it's|\"q\"|-n|".into(), "gone\n".into()));
}

#[test]
fn exit_codes_are_those_of_the_command() {
    let cluster = Cluster::new(1);
    for (script, code) in [("true", 0), ("exit 255", 255), ("kill -9 $$", 137), ("no-such-program", 127)] {
        assert_eq!(run(&mut cluster.exec(&["h1", script])).0, Some(code), "{script}");
    }
}

#[test]
fn standard_input_crosses_unless_n_is_given() {
    let cluster = Cluster::new(1);
    let input: Vec<u8> = (0..3_000_000_u32).map(|n| (n ^ (n >> 8)) as u8).collect();
    for (options, expected) in [(&[][..], &input[..]), (&["-n"], &[])] {
        let line: Vec<_> = options.iter().copied().chain(["h1", "cat"]).collect();
        let mut command = cluster.exec(&line);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let sent = input.clone();
        let writer = std::thread::spawn(move || stdin.write_all(&sent));
        let output = child.wait_with_output().unwrap();
        let _ = writer.join().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(blake3::hash(&output.stdout), blake3::hash(expected), "{options:?}");
    }
}

#[test]
fn a_reader_that_has_enough_ends_the_command() {
    let cluster = Cluster::new(1);
    let file = cluster.path("pid");
    let script = format!("echo $$ >{}; exec yes", file.display());
    let mut child = cluster.exec(&["h1", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = pid_in(&file);
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGPIPE));
    eventually("the remote command ends", || !alive(pid));
}

#[test]
fn environment_and_directory_come_along() {
    let cluster = Cluster::new(2);
    let directory = cluster.path("work");
    std::fs::create_dir(&directory).unwrap();
    let script = "echo $COLOUR $GRIDCAST_LAUNCH $GRIDCAST_NODE ${HOSTNAME:-none} ${PMIX_RANK:-none}; pwd";
    let mut command = cluster.exec(&["h2", script]);
    command.env("COLOUR", "red").env("GRIDCAST_LAUNCH", "l-1").env("GRIDCAST_NODE", "h1");
    command.env("HOSTNAME", "wrong").env("PMIX_RANK", "3").env_remove("PWD").current_dir(&directory);
    let (code, out, err) = run(&mut command);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let own = std::env::var("HOSTNAME").unwrap_or_else(|_| "none".to_owned());
    assert_eq!(out, format!("red l-1 h2 {own} none\n{}\n", directory.display()));
}

#[test]
fn a_directory_that_is_not_there_is_replaced_by_home() {
    let cluster = Cluster::new(1);
    let [gone, home] = ["gone", "home"].map(|name| cluster.path(name));
    std::fs::create_dir(&home).unwrap();
    for (home, expected) in [(home.to_str().unwrap(), home.to_str().unwrap()), ("/no/home", "/")] {
        std::fs::create_dir(&gone).unwrap();
        let script = format!("cd {} && rmdir {} && exec \"$@\"", gone.display(), gone.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "sh"]).args([PROGRAM, "exec", "h1", "pwd; cat"]);
        cluster.settings(&mut shell, 1);
        shell.env("HOME", home).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        // Input survives the attempts.
        child.stdin.take().unwrap().write_all(b"input").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), format!("{expected}\ninput")));
    }
}

#[test]
fn trouble_with_the_connection_names_host_cause_and_remedy() {
    let mut cluster = Cluster::new(2);
    let hosts = cluster.hosts();
    let stranger = cluster.path("stranger");
    Authority::new().keys(&stranger, "h1");
    // h2's address under a name that its certificate does not bear.
    let text = std::fs::read_to_string(&hosts).unwrap() + "127.0.0.2 impostor\n";
    std::fs::write(&hosts, text).unwrap();

    let expect = |command: &mut Command, host: &str, words: &[&str]| {
        let (code, out, err) = run(command);
        assert_eq!((code, out.as_str()), (Some(255), ""), "{err}");
        let prefix = format!("gridcast-starter exec: {host}: {}: ", words[0]);
        assert!(err.starts_with(&prefix) && err.trim_end().lines().count() == 1, "{err}");
        for word in words {
            assert!(err.contains(word), "{word} is not in: {err}");
        }
    };
    let named = hosts.to_str().unwrap();
    expect(&mut cluster.exec(&["h9", "true"]), "h9", &["NameUnresolved", "`h9`", named, "machinefile"]);
    let at = format!("127.0.0.99:{}", cluster.port);
    expect(&mut cluster.exec(&["nobody", "true"]), "nobody", &["NoStarter", &at, "gridcast-starter serve"]);
    expect(&mut cluster.exec(&["impostor", "true"]), "impostor", &["KeyRefused", "not made out to impostor"]);
    expect(cluster.exec(&["h2", "true"]).env("GRIDCAST_KEYS", &stranger), "h2", &["KeyRefused", "same run"]);
    let ca = stranger.join("ca.pem");
    std::fs::copy(cluster.keys(1).join("ca.pem"), ca).unwrap();
    expect(cluster.exec(&["h2", "true"]).env("GRIDCAST_KEYS", &stranger), "h2", &["KeyRefused", "same run"]);
    let mut unreadable = cluster.exec(&["h2", "true"]);
    expect(unreadable.env("GRIDCAST_KEYS", "/no/keys"), "h2", &["KeysUnreadable", "/no/keys/ca.pem"]);
    expect(cluster.exec(&["h2", "true"]).env("GRIDCAST_STARTER_PORT", "x"), "h2", &["PortInvalid", "`x`"]);

    // The node dies under a running command.
    let file = cluster.path("pid");
    let script = format!("echo $$ >{}; echo up; exec sleep 1000", file.display());
    let mut command = cluster.exec(&["h2", &script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = pid_in(&file);
    let mut up = [0; 3];
    child.stdout.as_mut().unwrap().read_exact(&mut up).unwrap();
    cluster.take(2).process.kill().unwrap();
    let (code, _, err) = outcome(&child.wait_with_output().unwrap());
    // This one was not PID 1, so that its command outlives it.
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
    assert!(code == Some(255) && err.contains("h2: NodeLost: ") && err.contains("not known"), "{err}");
}

#[test]
fn a_long_name_finds_a_certificate_of_the_short_one() {
    let cluster = Cluster::new(1);
    assert_eq!(run(&mut cluster.exec(&["h1.ring.default.svc", "echo hi"])).1, "hi\n");
    assert_eq!(run(&mut cluster.exec(&["127.0.0.1", "echo hi"])).1, "hi\n");
    assert_eq!(run(&mut cluster.exec(&["someone@h1", "echo hi"])).1, "hi\n");
}

#[test]
fn signals_are_passed_on() {
    let cluster = Cluster::new(1);
    let file = cluster.path("pid");
    let script = format!("trap 'exit 9' TERM; echo $$ >{}; while :; do sleep 0.05; done", file.display());
    // The shell there says that its `sleep` was terminated.
    let mut child = cluster.exec(&["h1", &script]).stderr(Stdio::null()).spawn().unwrap();
    let pid = pid_in(&file);
    signal(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert!(!alive(pid));
}

#[test]
fn signals_that_are_ignored_here_stay_ignored() {
    let cluster = Cluster::new(1);
    let file = cluster.path("pid");
    let script = format!("echo $$ >{}; read line; echo $line", file.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh", PROGRAM, "exec", "h1", &script]);
    cluster.settings(&mut shell, 1);
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    pid_in(&file);
    signal(&child, Signal::SIGHUP);
    child.stdin.take().unwrap().write_all(b"still here\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "still here\n".to_owned()));
}

#[test]
fn a_signal_gets_through_although_the_command_reads_no_input() {
    let cluster = Cluster::new(1);
    let file = cluster.path("pid");
    let script = format!("echo $$ >{}; exec sleep 1000", file.display());
    let mut child = cluster.exec(&["h1", &script]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&vec![0; 8 << 20]));
    let pid = pid_in(&file);
    // Until the pipe, both windows and all queues are full.
    std::thread::sleep(std::time::Duration::from_millis(500));
    // Not SIGINT: whoever runs this in the background of a shell has that ignored, and ignored it stays.
    signal(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    eventually("the remote command ends", || !alive(pid));
    assert!(writer.join().unwrap().is_err());
}

#[test]
fn a_killed_remote_shell_takes_the_command_along() {
    let cluster = Cluster::new(1);
    let file = cluster.path("pid");
    let script = format!("echo $$ >{}; exec sleep 1000", file.display());
    let mut child = cluster.exec(&["h1", &script]).spawn().unwrap();
    let pid = pid_in(&file);
    signal(&child, Signal::SIGKILL);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    eventually("the remote command ends", || !alive(pid));
}

#[test]
fn many_at_once() {
    let cluster = Cluster::new(2);
    let spawn = |n: u32| {
        let host = if n.is_multiple_of(2) { "h1" } else { "h2" };
        let script = format!("echo {n}; sleep 0.2; exit {n}");
        cluster.exec(&["-x", host, &script]).stdout(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..40).map(|n| (n, spawn(n))).collect();
    for (n, child) in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(n.cast_signed()), format!("{n}\n")));
    }
}

/// For launchers that take one program without arguments as their remote shell.
#[test]
fn by_its_other_name_it_is_the_remote_shell() {
    let cluster = Cluster::new(1);
    let shell = cluster.path("gridcast-ssh");
    std::os::unix::fs::symlink(PROGRAM, &shell).unwrap();
    let mut command = Command::new(shell);
    command.args(["-x", "h1", "\"echo\"", "it is", "$GRIDCAST_NODE"]).stdin(Stdio::null());
    cluster.settings(&mut command, 1);
    assert_eq!(run(&mut command), (Some(0), "it is h1\n".into(), String::new()));
}
