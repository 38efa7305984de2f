//! Launches: they outlive their callers, and their end can be asked for.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gridcast_proto::v1::launch_event::Event;
use gridcast_proto::v1::starter_client::StarterClient;
use gridcast_proto::v1::{
    ExecFailed, ExecStart, LaunchEnded, LaunchEvent, LaunchRequest, LaunchStarted, StopLaunchRequest,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::support::{Cluster, alive, eventually, start, text};

fn script(id: &str, script: &str) -> LaunchRequest {
    LaunchRequest { id: id.to_owned(), start: Some(start(&["sh", "-c", script])), ..LaunchRequest::default() }
}

fn attach(id: &str) -> LaunchRequest {
    LaunchRequest { id: id.to_owned(), attach_only: true, ..LaunchRequest::default() }
}

/// What a caller has heard.
struct Heard {
    events: Streaming<LaunchEvent>,
    started: LaunchStarted,
    output: Vec<u8>,
    ended: Option<LaunchEnded>,
}

async fn events(
    client: &mut StarterClient<Channel>,
    request: LaunchRequest,
) -> Result<Streaming<LaunchEvent>, Status> {
    client.launch(request).await.map(tonic::Response::into_inner)
}

impl Heard {
    async fn new(cluster: &Cluster, request: LaunchRequest) -> Self {
        let mut events = events(&mut cluster.client(1).await, request).await.unwrap();
        let first = events.message().await.unwrap().and_then(|event| event.event);
        let Some(Event::Started(started)) = first else { panic!("not started: {first:?}") };
        Self { events, started, output: Vec::new(), ended: None }
    }

    /// One event; `false` at the end of the stream.
    async fn next(&mut self) -> bool {
        assert!(
            self.ended.is_none() || self.events.message().await.unwrap().is_none(),
            "the end is the last"
        );
        if self.ended.is_some() {
            return false;
        }
        match self.events.message().await.unwrap().unwrap().event.unwrap() {
            Event::Output(output) => {
                assert!((1..=64 << 10).contains(&output.data.len()));
                self.output.extend_from_slice(&output.data);
            }
            Event::Ended(ended) => self.ended = Some(ended),
            other => panic!("{other:?}"),
        }
        true
    }

    async fn until(&mut self, word: &str) {
        while !text(&self.output).contains(word) {
            assert!(self.next().await, "without {word}: {}", text(&self.output));
        }
    }

    async fn finish(mut self) -> (String, LaunchEnded) {
        while self.next().await {}
        (text(&self.output), self.ended.unwrap())
    }
}

async fn stop(cluster: &Cluster, id: &str, grace: Duration) -> Result<bool, Status> {
    let request = StopLaunchRequest { id: id.to_owned(), grace_millis: grace.as_millis() as u32 };
    cluster.client(1).await.stop_launch(request).await.map(|reply| reply.into_inner().was_running)
}

const GRACE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_launch_is_told_from_start_to_end() {
    let cluster = Cluster::new(1);
    let program =
        "echo on $GRIDCAST_NODE for $GRIDCAST_LAUNCH; cat; echo bad >&2; sleep 0.3; echo more; exit 7";
    let mut request = script("run-1", program);
    // Of two ids, the launch's own.
    request.start.as_mut().unwrap().launch = "other".to_owned();
    let heard = Heard::new(&cluster, request).await;
    assert!(heard.started.pid > 0);
    let (output, ended) = heard.finish().await;
    assert!(output.starts_with("on h1 for run-1\n") && output.ends_with("more\n"), "{output}");
    assert_eq!((ended.code, ended.signal), (7, 0));
    assert_eq!((text(&ended.output_tail), text(&ended.stderr_tail)), (output, "bad\n".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_without_its_caller_and_is_found_again() {
    let cluster = Cluster::new(1);
    let gate = cluster.path("gate");
    let program =
        format!("echo one; while ! test -e {0}; do sleep 0.02; done; echo two; exit 3", gate.display());
    let mut first = Heard::new(&cluster, script("run-1", &program)).await;
    first.until("one").await;
    let pid = first.started.pid;
    drop(first);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(alive(pid), "nobody listens");
    // Asked to start it, as a controller would that cannot know; and asked only to attach.
    let mut again = Heard::new(&cluster, script("run-1", "echo never")).await;
    let mut third = Heard::new(&cluster, attach("run-1")).await;
    assert_eq!([again.started.pid, third.started.pid], [pid, pid]);
    assert!(again.started.age_micros >= 300_000);
    again.until("one").await;
    third.until("one").await;
    std::fs::write(&gate, "").unwrap();
    for heard in [again, third] {
        let (output, ended) = heard.finish().await;
        assert_eq!((output.as_str(), ended.code), ("one\ntwo\n", 3));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    for request in [attach("run-1"), script("run-1", "echo never")] {
        let (output, ended) = Heard::new(&cluster, request).await.finish().await;
        assert_eq!(
            (output.as_str(), ended.code, text(&ended.output_tail)),
            ("one\ntwo\n", 3, output.clone())
        );
        assert!(ended.age_micros >= 50_000, "since it ended");
    }
}

#[tokio::test]
async fn one_runs_at_a_time_and_sixteen_are_remembered() {
    let cluster = Cluster::new(1);
    let mut client = cluster.client(1).await;
    let code = async |client: &mut StarterClient<Channel>, request| {
        let status = events(client, request).await.unwrap_err();
        (status.code(), status.message().to_owned())
    };
    for (request, expected) in [
        (attach("run-0"), Code::NotFound),
        (script("Run", "true"), Code::InvalidArgument),
        (script("", "true"), Code::InvalidArgument),
        (LaunchRequest { id: "run-0".into(), ..LaunchRequest::default() }, Code::InvalidArgument),
    ] {
        assert_eq!(code(&mut client, request).await.0, expected);
    }
    let first = Heard::new(&cluster, script("run-0", "sleep 1000")).await;
    let (busy, message) = code(&mut client, script("run-1", "true")).await;
    assert!(busy == Code::FailedPrecondition && message.contains("launch run-0 runs"), "{message}");
    assert!(stop(&cluster, "run-0", GRACE).await.unwrap());
    first.finish().await;
    for number in 1..=16 {
        Heard::new(&cluster, script(&format!("run-{number}"), "exit 5")).await.finish().await;
    }
    assert_eq!(code(&mut client, attach("run-0")).await.0, Code::NotFound);
    for number in 1..=16 {
        assert_eq!(Heard::new(&cluster, attach(&format!("run-{number}"))).await.finish().await.1.code, 5);
    }
}

#[tokio::test]
async fn what_cannot_be_started_is_told_again() {
    let cluster = Cluster::new(1);
    let request = LaunchRequest {
        id: "run-1".into(),
        start: Some(start(&["no-such-mpirun"])),
        ..LaunchRequest::default()
    };
    for request in [request, attach("run-1")] {
        let mut events = events(&mut cluster.client(1).await, request).await.unwrap();
        let event = events.message().await.unwrap().unwrap().event.unwrap();
        let Event::Failed(ExecFailed { reason, message }) = event else { panic!("{event:?}") };
        assert!(reason == "ProgramNotFound" && message.contains("no-such-mpirun"), "{message}");
        assert!(events.message().await.unwrap().is_none());
    }
    assert!(!stop(&cluster, "run-1", GRACE).await.unwrap());
    Heard::new(&cluster, script("run-2", "true")).await.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_waits_for_the_end_and_kills_what_does_not_listen() {
    let cluster = Cluster::new(1);
    assert!(!stop(&cluster, "run-1", GRACE).await.unwrap(), "what is not known has ended");
    // Counts how often it is told, for longer than two callers at once need to be heard.
    let polite = "n=0; trap 'n=$((n + 1))' TERM; echo up; while test $n = 0; do sleep 0.02; done 2>/dev/null; \
                  for i in 1 2 3 4 5 6 7 8 9; do sleep 0.1; done 2>/dev/null; echo told $n; exit 4";
    let mut heard = Heard::new(&cluster, script("run-1", polite)).await;
    heard.until("up").await;
    let (one, two) = tokio::join!(stop(&cluster, "run-1", GRACE), stop(&cluster, "run-1", GRACE));
    assert!(one.unwrap() && two.unwrap());
    assert!(!alive(heard.started.pid));
    let (output, ended) = heard.finish().await;
    // A launcher takes a second SIGTERM for impatience.
    assert!(output.ends_with("told 1\n"), "{output}");
    assert_eq!((ended.code, ended.signal), (4, 0));
    assert!(!stop(&cluster, "run-1", GRACE).await.unwrap());

    let stubborn = "trap '' TERM; sleep 1000 & echo $!; while :; do sleep 1; done";
    let mut heard = Heard::new(&cluster, script("run-2", stubborn)).await;
    heard.until("\n").await;
    let child: i64 = text(&heard.output).trim().parse().unwrap();
    let begun = Instant::now();
    assert!(stop(&cluster, "run-2", Duration::from_millis(700)).await.unwrap());
    assert!(begun.elapsed() >= Duration::from_millis(700));
    assert!(!alive(heard.started.pid) && !alive(child), "its whole group");
    assert_eq!(heard.finish().await.1.signal, libc::SIGKILL);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_whose_caller_has_gone_goes_on() {
    let cluster = Cluster::new(1);
    let mut heard =
        Heard::new(&cluster, script("run-1", "trap '' TERM; echo up; while :; do sleep 1; done")).await;
    heard.until("up").await;
    let asked =
        tokio::time::timeout(Duration::from_millis(200), stop(&cluster, "run-1", Duration::from_secs(1)));
    assert!(asked.await.is_err());
    assert_eq!(heard.finish().await.1.signal, libc::SIGKILL);
}

#[tokio::test]
async fn what_it_leaves_behind_does_not_keep_it_from_ending() {
    let cluster = Cluster::new(1);
    let silent = "sleep 1000 & echo left $!.; head -c 60000 /dev/zero | tr '\\0' x; exit 2";
    let chatty = "(while :; do echo noise; done) & echo left $!.; exit 2";
    for (id, program) in [("run-1", silent), ("run-2", chatty)] {
        let begun = Instant::now();
        let mut heard = Heard::new(&cluster, script(id, program)).await;
        // What is left behind may be the first to write.
        heard.until(".\n").await;
        let told = text(&heard.output);
        let child: i32 = told.split("left ").nth(1).unwrap().split('.').next().unwrap().parse().unwrap();
        let (output, ended) = heard.finish().await;
        // The one that writes has lost its reader, and may be gone already.
        let left = kill(Pid::from_raw(child), Signal::SIGKILL);
        assert!(left.is_ok() || id == "run-2", "what is left behind runs on");
        assert_eq!(ended.code, 2);
        assert!(id == "run-2" || output.ends_with(&"x".repeat(60_000)), "its own last words are whole");
        // Generous: the bound is a second, the machine is shared.
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_does_not_read_misses_the_middle_and_stops_nobody() {
    let cluster = Cluster::new(1);
    let mut slow = Heard::new(&cluster, script("run-1", "seq 1 3000000; echo end >&2")).await;
    let pid = slow.started.pid;
    assert!(slow.next().await);
    eventually("it ends although nobody reads", || !alive(pid));
    let (output, ended) = slow.finish().await;
    assert!(output.len() < 16 << 20, "{} of 22 MB: what fits into windows, and the last", output.len());
    assert!(output.contains("\n3000000\n"));
    assert_eq!((ended.output_tail.len(), text(&ended.stderr_tail)), (64 << 10, "end\n".to_owned()));
}

/// A starter whose own output is kept, as the container's log.
fn logged(cluster: &mut Cluster) -> (std::path::PathBuf, std::path::PathBuf) {
    let [out, err] = ["log.out", "log.err"].map(|name| cluster.path(name));
    let file = |path| Stdio::from(std::fs::File::create(path).unwrap());
    let mut command = cluster.serve(1, &[]);
    cluster.start(1, command.stdout(file(&out)).stderr(file(&err)));
    (out, err)
}

#[tokio::test]
async fn the_container_s_log_has_whole_lines_of_named_hosts() {
    let mut cluster = Cluster::empty(1);
    let (out, err) = logged(&mut cluster);
    let program = "printf '[1,0]<stdout>:hel'; sleep 0.1; printf '[1,1]<stdout>:good\\n'; \
                   printf '[1,0]<stdout>:lo\\n'; printf '[1,1]<stderr>:bad\\n' >&2; printf 'mpirun: half' >&2; \
                   sleep 0.1; printf ' a line' >&2";
    let mut request = script("run-1", program);
    request.tag_hosts = ["a", "b"].map(str::to_owned).to_vec();
    let (output, ended) = Heard::new(&cluster, request).await.finish().await;
    assert_eq!(text(&ended.stderr_tail), "b: bad\nmpirun: half a line");
    assert!(output.contains("b: good\n") && output.contains("a: hello\n"), "{output}");
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    eventually("the log", || read(&out).contains("a: hello\n") && read(&err).contains("half a line\n"));
    assert_eq!(read(&out), "b: good\na: hello\n");
    assert!(read(&err).contains("b: bad\n"), "{}", read(&err));
}

#[tokio::test]
async fn it_ends_with_the_starter_and_its_last_lines_are_logged() {
    let mut cluster = Cluster::empty(1);
    let (out, _) = logged(&mut cluster);
    let program = "trap 'seq 1 20000; printf bye; exit 6' TERM; echo up; while :; do sleep 0.02; done";
    let mut heard = Heard::new(&cluster, script("run-1", program)).await;
    heard.until("up").await;
    let mut node = cluster.take(1);
    kill(Pid::from_raw(node.process.id().cast_signed()), Signal::SIGTERM).unwrap();
    let (output, ended) = heard.finish().await;
    assert!(output.ends_with("\n20000\nbye"), "{output}");
    assert_eq!((ended.code, ended.signal), (6, 0), "the caller learns how it ended");
    assert_eq!(node.process.wait().unwrap().code(), Some(0));
    let expected: Vec<_> = (1..=20_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(std::fs::read_to_string(out).unwrap(), format!("up\n{}bye\n", expected.concat()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_takes_stops_the_program_but_not_the_starter() {
    let mut cluster = Cluster::empty(1);
    let mut command = cluster.serve(1, &[]);
    cluster.start(1, command.stdout(Stdio::piped()));
    let mut heard = Heard::new(&cluster, script("run-1", "exec seq 1 100000000")).await;
    heard.until("\n").await;
    // Nobody reads the pipe: the program waits, the starter answers.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(alive(heard.started.pid));
    assert!(cluster.ranks(1, "run-1").await.is_empty());
    assert!(stop(&cluster, "run-1", GRACE).await.unwrap());
    assert_eq!(heard.finish().await.1.signal, libc::SIGTERM);
    // Nor does it keep the starter from ending, which takes the pod's patience otherwise.
    let mut node = cluster.take(1);
    kill(Pid::from_raw(node.process.id().cast_signed()), Signal::SIGTERM).unwrap();
    eventually("the starter ends", || node.process.try_wait().unwrap().is_some());
}

#[tokio::test]
async fn the_environment_is_the_request_s() {
    let cluster = Cluster::new(1);
    let request = LaunchRequest {
        id: "run-1".into(),
        start: Some(ExecStart {
            argv: ["sh", "-c", "echo $GRIDCAST_HOSTS $A; pwd"].map(String::from).into(),
            environment: HashMap::from([("A".into(), "a".into()), ("PATH".into(), "/usr/bin:/bin".into())]),
            directory: "/tmp".into(),
            ..ExecStart::default()
        }),
        ..LaunchRequest::default()
    };
    assert_eq!(Heard::new(&cluster, request).await.finish().await.0, "a\n/tmp\n");
}

/// Where a seccomp profile or Yama forbids it, as tried by forbidding it.
#[tokio::test]
async fn where_single_copy_is_forbidden_mpi_is_told() {
    let told = "env | grep -E '^OMPI_MCA_(btl_vader_single_copy_mechanism|smsc)=' | sort";
    let cluster = Cluster::new(1);
    let (output, _) = Heard::new(&cluster, script("run-1", told)).await.finish().await;
    assert_eq!(output, "", "it is permitted here");
    let mut cluster = Cluster::empty(1);
    let mut command = cluster.serve(1, &[]);
    forbid_single_copy(&mut command);
    cluster.start(1, &mut command);
    let (output, _) = Heard::new(&cluster, script("run-1", told)).await.finish().await;
    assert_eq!(output, "OMPI_MCA_btl_vader_single_copy_mechanism=none\nOMPI_MCA_smsc=^cma,knem,xpmem\n");
    // What the user says counts.
    let mut request = script("run-2", told);
    request.start.as_mut().unwrap().environment.insert("OMPI_MCA_smsc".into(), "xpmem".into());
    let (output, _) = Heard::new(&cluster, request).await.finish().await;
    assert!(output.ends_with("OMPI_MCA_smsc=xpmem\n"), "{output}");
}

/// As a container's seccomp profile does: the call fails, everything else is permitted.
#[allow(unsafe_code)]
fn forbid_single_copy(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    let filter = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let call = u32::try_from(libc::SYS_process_vm_readv).unwrap();
    // Load the number of the call; if it is this one, EPERM.
    let mut program = [
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
        // SAFETY: the filter lives in the closure; the kernel copies it.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if installed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: prctl is async-signal-safe, and the closure allocates nothing.
    unsafe { command.pre_exec(install) };
}
