//! Runs the real program, as root, and looks whether it leaves anything.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::format_collect,
    clippy::format_push_string,
    reason = "a test"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// A run of these tests takes a few seconds; on a loaded machine, some tens.
const TIMEOUT: Duration = Duration::from_secs(90);
/// Marks the processes of one test in their environment.
const MARK: &str = "GRIDCAST_TEST_PLACE";

static SERIAL: Mutex<()> = Mutex::new(());

/// A directory for one test, and what the machine looked like before it. One test of a file at a time: each of them
/// is many processes.
pub struct Place {
    directory: tempfile::TempDir,
    before: Machine,
    _serial: MutexGuard<'static, ()>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// A command that runs.
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<()>>,
    said: Arc<Mutex<String>>,
}

/// What must be as before when all is over.
struct Machine {
    interfaces: BTreeSet<String>,
    /// Values of `/proc/sys/net` that somebody might write.
    settings: BTreeMap<PathBuf, String>,
    root: BTreeSet<String>,
    mounts: BTreeSet<String>,
}

impl Place {
    /// A place that nobody else uses.
    pub fn new() -> Self {
        Self::make(None)
    }

    /// As [`Self::new`], with a state directory that holds this many bytes.
    pub fn with_small_state(bytes: u64) -> Self {
        Self::make(Some(bytes))
    }

    fn make(state_bytes: Option<u64>) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "these tests make namespaces: run them as root");
        let serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::Builder::new().prefix("gridcast-test-").tempdir().unwrap();
        if let Some(bytes) = state_bytes {
            let state = directory.path().join("state");
            fs::create_dir(&state).unwrap();
            let size = format!("size={bytes}");
            mount(Some("tmpfs"), &state, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())).unwrap();
        }
        Self { before: Machine::look(directory.path()), directory, _serial: serial }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// `gridcast ARGUMENTS`, in this directory, and in a process group of its own so that Ctrl-C can be imitated.
    pub fn gridcast(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gridcast"));
        command.args(arguments).current_dir(self.directory.path()).env(MARK, self.directory.path());
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    fn local(&self, verb: &str, manifest: &str, more: &[&str]) -> Command {
        self.write("manifest.yaml", manifest);
        let mut command = self.gridcast(&["local", verb, "-f", "manifest.yaml", "--state-dir", "state"]);
        command.args(["--report", "report.json"]).args(more);
        command
    }

    /// Starts `local run`.
    pub fn start(&self, manifest: &str, more: &[&str]) -> Running {
        Running::start(self.local("run", manifest, more))
    }

    /// `local run`, to its end.
    pub fn run(&self, manifest: &str, more: &[&str]) -> Done {
        self.start(manifest, more).end()
    }

    /// Starts `local up`.
    pub fn start_up(&self, manifest: &str, more: &[&str]) -> Running {
        Running::start(self.local("up", manifest, more))
    }

    /// Any command of `local` on the state directory, to its end.
    pub fn on_state(&self, verb: &str, more: &[&str]) -> Done {
        Running::start(self.state_command(verb, more)).end()
    }

    pub fn state_command(&self, verb: &str, more: &[&str]) -> Command {
        let mut command = self.gridcast(&["local", verb, "--state-dir", "state"]);
        command.args(more);
        command
    }

    pub fn report(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("report.json")).expect("a report")).unwrap()
    }

    /// The report says that the run failed for this reason, in a message that has all these words.
    #[track_caller]
    pub fn failed(&self, done: &Done, reason: &str, words: &[&str]) -> Value {
        let report = self.report();
        assert_eq!(done.code(), 1, "{}", done.stderr);
        assert_eq!((&report["outcome"], &report["reason"]), (&"Failed".into(), &reason.into()), "{report:#}");
        let message = report["message"].as_str().unwrap();
        for word in words {
            assert!(message.contains(word), "{word:?} is not in {message:?}");
        }
        report
    }

    /// Living processes that began here, with their arguments.
    pub fn processes(&self) -> Vec<(i32, Vec<String>)> {
        let mark = format!("{MARK}={}", self.directory.path().display());
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| *pid != std::process::id().cast_signed())
            .filter_map(|pid| {
                let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).ok();
                let marked = read("environ")?.split(|b| *b == 0).any(|v| v == mark.as_bytes());
                // The keeper of a node has no environment, but stands where the command was called.
                let here = fs::read_link(format!("/proc/{pid}/cwd"))
                    .is_ok_and(|p| p.starts_with(self.directory.path()));
                let arguments = String::from_utf8_lossy(&read("cmdline")?).into_owned();
                let arguments: Vec<String> =
                    arguments.split_terminator('\0').map(ToOwned::to_owned).collect();
                ((marked || here) && !arguments.is_empty()).then_some((pid, arguments))
            })
            .collect()
    }

    /// The process whose arguments hold all of `words`, the first of them as the program's name; waits for it.
    #[track_caller]
    pub fn process(&self, words: &[&str]) -> i32 {
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            let found = self.processes().into_iter().find(|(_, arguments)| {
                arguments.first().is_some_and(|a| a == words[0])
                    && words.iter().all(|w| arguments.iter().any(|a| a == w))
            });
            if let Some((pid, _)) = found {
                return pid;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no process {words:?} among {:#?}", self.processes());
    }

    pub fn agent(&self, node: &str) -> i32 {
        self.process(&["/gridcast/bin/gridcast-agent", "--name", node])
    }

    pub fn starter(&self, node: &str) -> i32 {
        self.process(&["/gridcast/bin/gridcast-starter", "serve", node])
    }

    pub fn fabric(&self) -> i32 {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let found =
                self.processes().into_iter().find(|(_, a)| a.get(1).is_some_and(|a| a == "__lab-fabric"));
            match found {
                Some((pid, _)) => return pid,
                None => assert!(Instant::now() < deadline, "no fabric"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Nothing of the runs here is left: no process, mount, interface, setting, nor file beside reports.
    #[track_caller]
    pub fn nothing_left(&self) {
        self.no_process_left();
        let runs =
            fs::read_dir(self.path("state/runs")).map(|d| d.flatten().map(|e| e.path()).collect::<Vec<_>>());
        assert_eq!(runs.unwrap_or_default(), Vec::<PathBuf>::new(), "files are left");
        let names = fs::read_dir(self.path("state"))
            .map(|d| d.flatten().map(|e| e.file_name()).collect::<BTreeSet<_>>());
        let known = ["reports".into(), "runs".into()].into();
        let names = names.unwrap_or_default();
        assert!(names.is_subset(&known), "{names:?}");
        // Open MPI's session directories are named after the node; in the machine's own they would outlive a killed run,
        // and two runs of one manifest would meet in them.
        let shared = fs::read_dir(std::env::temp_dir()).unwrap().flatten().map(|e| e.file_name());
        let sessions: Vec<_> = shared.filter(|n| n.to_string_lossy().starts_with("ompi.m-n-")).collect();
        assert!(sessions.is_empty(), "{sessions:?}");
    }

    /// As [`Self::nothing_left`], but for files.
    #[track_caller]
    pub fn no_process_left(&self) {
        // What was killed from outside notices within milliseconds.
        let deadline = Instant::now() + Duration::from_secs(5);
        while !self.processes().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.processes(), [], "processes are left");
        let (now, before) = (Machine::look(self.directory.path()), &self.before);
        assert_eq!(now.interfaces, before.interfaces);
        assert_eq!(now.root, before.root, "entries of the machine's root");
        assert_eq!(now.mounts, before.mounts);
        for (key, value) in &now.settings {
            assert_eq!(Some(value), before.settings.get(key), "{}", key.display());
        }
    }
}

impl Drop for Place {
    /// A test that failed leaves nothing either.
    fn drop(&mut self) {
        for (pid, _) in self.processes() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _ = umount2(&self.path("state"), MntFlags::MNT_DETACH);
    }
}

impl Machine {
    fn look(directory: &Path) -> Self {
        let names = |path: &str| {
            fs::read_dir(path)
                .unwrap()
                .flatten()
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .collect()
        };
        let tcp = fs::read_dir("/proc/sys/net/ipv4").unwrap().flatten().map(|e| e.path());
        let tcp = tcp.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("tcp_")));
        let core = ["rmem_max", "wmem_max"].map(|n| Path::new("/proc/sys/net/core").join(n));
        let settings =
            tcp.chain(core).filter_map(|p| Some((p.clone(), fs::read_to_string(p).ok()?))).collect();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        // Others may mount on this machine meanwhile; these places are ours.
        let ours = |line: &&str| {
            let at = line.split(' ').nth(4).unwrap_or_default();
            Path::new(at).starts_with(directory)
                || ["/data", "/scratch", "/dev/shm", "/etc/hosts"].contains(&at)
        };
        Self {
            interfaces: names("/sys/class/net"),
            settings,
            root: names("/"),
            mounts: mounts.lines().filter(ours).map(ToOwned::to_owned).collect(),
        }
    }
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let stdout = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = out.read_to_end(&mut bytes);
            bytes
        });
        let heard = Arc::clone(&said);
        let stderr = std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(n @ 1..) = err.read(&mut block) {
                heard.lock().unwrap().push_str(&String::from_utf8_lossy(&block[..n]));
            }
        });
        Self { child, stdout: Some(stdout), stderr: Some(stderr), said }
    }

    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits until standard error says `text`.
    #[track_caller]
    pub fn said(&self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.said.lock().unwrap().contains(text) {
            let over = self.stderr.as_ref().is_some_and(JoinHandle::is_finished) || Instant::now() > deadline;
            assert!(!over, "it never said {text:?} but {}", self.said.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// As a terminal does it: to the whole process group.
    pub fn signal_group(&self, signal: Signal) {
        kill(Pid::from_raw(-self.pid()), signal).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.child.stdin.take().unwrap().write_all(bytes).unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(mut self) -> Done {
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it does not end; it said {}", self.said.lock().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        };
        let stdout = self.stdout.take().unwrap().join().unwrap();
        self.stderr.take().unwrap().join().unwrap();
        let stderr = self.said.lock().unwrap().clone();
        Done { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Done {
    /// The exit code, or 128 + the signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap())
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Lines of standard output, sorted: ranks write in any order.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.out().lines().map(ToOwned::to_owned).collect();
        lines.sort();
        lines
    }
}

/// Ends a process at once.
pub fn kill_hard(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// A manifest of the cluster `m`: groups as (name, replicas, slots), then `rest` of the spec, lines of YAML.
pub fn manifest(groups: &[(&str, u32, u32)], rest: &str) -> String {
    let mut text =
        "apiVersion: gridcast.io/v1alpha1\nkind: VirtualCluster\nmetadata: {name: m}\nspec:\n  groups:\n"
            .to_owned();
    for (name, replicas, slots) in groups {
        text += &format!(
            "  - {{name: {name}, replicas: {replicas}, slots: {slots}, pod: {{spec: {{containers: [{{name: n, image: i}}]}}}}}}\n"
        );
    }
    if !rest.contains("network:") {
        text += "  network: {probe: {policy: Never}, tcp: {mode: \"Off\"}}\n";
    }
    text + &rest.lines().map(|line| format!("  {line}\n")).collect::<String>()
}

/// A program that runs `script` by `sh` in `processes` processes.
pub fn script(processes: u32, script: &str) -> String {
    format!("run:\n  processes: {processes}\n  command: [sh, -c, {script:?}]\n")
}

/// One switch, with links of `mbps` to each of `hosts`.
pub fn topology(hosts: &[&str], mbps: f64) -> String {
    let links: String =
        hosts.iter().map(|h| format!("- {{a: {h}, b: s, mbps: {mbps}, delayMs: 0.1}}\n")).collect();
    format!("hosts: [{}]\nswitches: [s]\nlinks:\n{links}", hosts.join(", "))
}
