//! The commands on clusters that exist: `ps`, `exec`, `down`, `clean`.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io::Write as _,
    process::ExitCode,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use gridcast_proto::v1::exec_request::Request;
use nix::sys::signal::Signal;
use tokio::{signal::unix::SignalKind, sync::mpsc};

use crate::{
    args,
    failure::{Failure, OrFailed as _},
};

use super::{
    exec,
    remote::{self, ControllerKeys},
    state::{FoundRun, Kind, Record, StateDir},
};

/// A keeper restores settings and ends its nodes within this time, or `down` says that it does not.
const DOWN_TIMEOUT: Duration = Duration::from_mins(1);

/// `gridcast local ps`.
pub(crate) fn ps(state: &args::State) -> Result<(), Failure> {
    super::needs_root("local ps")?;
    let state = StateDir::open(&state.state_dir)?;
    let mut text = format!("{:<24} {:<8} {:<6} {:<9} {:>8}  NODES\n", "NAME", "ID", "KIND", "STATE", "AGE");
    for run in state.runs() {
        let Some(record) = &run.record else { continue };
        let age = UNIX_EPOCH + Duration::from_secs(record.created);
        let age = SystemTime::now().duration_since(age).unwrap_or_default().as_secs();
        let kind = match record.kind {
            Kind::Run => "run",
            Kind::Up => "up",
        };
        let state = match (run.alive, record.kind) {
            (true, Kind::Run) => "running",
            (true, Kind::Up) if !record.ready => "starting",
            (true, Kind::Up) if record.lost.is_empty() => "ready",
            (true, Kind::Up) => "degraded",
            (false, _) if run.kept => "kept",
            (false, _) => "dead",
        };
        let nodes: Vec<String> = record.nodes.iter().map(|n| format!("{}={}", n.name, n.address)).collect();
        let _ = writeln!(
            text,
            "{:<24} {:<8} {kind:<6} {state:<9} {:>8}  {}",
            record.name,
            record.id,
            format!("{age}s"),
            nodes.join(" ")
        );
        for lost in &record.lost {
            let _ = writeln!(text, "  lost: {lost}");
        }
    }
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// `gridcast local clean`.
pub(crate) fn clean(state: &args::State) -> Result<(), Failure> {
    super::needs_root("local clean")?;
    let removed = StateDir::open(&state.state_dir)?.clean(true)?;
    say(&match removed.len() {
        0 => "nothing to clean".to_owned(),
        n => format!("removed {n}: {}", removed.join(" ")),
    });
    Ok(())
}

fn say(line: &str) {
    // A closed terminal changes nothing of what was done.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// `gridcast local down`.
pub(crate) fn down(name: Option<&str>, state: &args::State) -> Result<(), Failure> {
    super::needs_root("local down")?;
    let state = StateDir::open(&state.state_dir)?;
    let found = find(&state, name, |r| r.kind == Kind::Up)?;
    let Some(record) = &found.record else { return Ok(()) };
    if found.alive {
        record.owner.signal(Signal::SIGTERM);
        let deadline = Instant::now() + DOWN_TIMEOUT;
        while record.owner.alive() {
            if Instant::now() > deadline {
                return Err(Failure::failed(
                    "DownTimeout",
                    format!(
                        "process {} that keeps cluster {} does not end; kill it, then run `gridcast local clean`",
                        record.owner.pid, record.name
                    ),
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // Its keeper removed it; where the keeper was killed, this does.
    state.clean(false)?;
    say(&format!("cluster {} is down", record.name));
    Ok(())
}

/// `gridcast local exec`. The exit code is the command's.
pub(crate) async fn exec(arguments: args::Exec) -> Result<ExitCode, Failure> {
    super::needs_root("local exec")?;
    let state = StateDir::open(&arguments.state.state_dir)?;
    let found = find(&state, arguments.name.as_deref(), |_| true)?;
    let (true, Some(record)) = (found.alive, &found.record) else {
        return Err(Failure::input(
            "the cluster's keeper is dead; run `gridcast local clean`, then `local up` again",
        ));
    };
    let Some(node) = record.nodes.iter().find(|n| n.name == arguments.node) else {
        let names: Vec<&str> = record.nodes.iter().map(|n| n.name.as_str()).collect();
        return Err(Failure::input(format!(
            "cluster {} has no node {:?}; its nodes are {}",
            record.name,
            arguments.node,
            names.join(" ")
        )));
    };
    if !node.init.alive() {
        return Err(Failure::failed(
            "NodeLost",
            format!("{}: the node has ended; `gridcast local ps` says more", node.name),
        ));
    }
    let keys = ControllerKeys::load(&found.path.join("keys"))?;
    let remote = remote::lazy(node, &keys)?;
    let (requests, receive) = mpsc::channel(4);
    exec::forward_stdin(requests.clone());
    forward_signals(&requests)?;
    drop(requests);
    let command = exec::Command {
        argv: arguments.command,
        environment: environment(record),
        directory: directory(record),
        launch: format!("exec-{}", std::process::id()),
    };
    let exited = exec::run(&remote, command, receive, || (), exec::to_standard).await?;
    Ok(ExitCode::from(u8::try_from(exited.shell_code()).unwrap_or(1)))
}

/// The caller's environment, with the launcher's above it.
fn environment(record: &Record) -> HashMap<String, String> {
    let own = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let mut environment: HashMap<String, String> = own.filter(|(k, _)| k != "HOSTNAME").collect();
    environment.extend(record.environment.clone());
    environment
}

/// Where the caller stands, as on this machine: all of it is seen in a node.
fn directory(record: &Record) -> String {
    let here = std::env::current_dir().unwrap_or_else(|_| record.directory.clone());
    here.to_string_lossy().into_owned()
}

/// Ctrl-C and the like go to the command on the node, which decides what they mean.
fn forward_signals(requests: &mpsc::Sender<Request>) -> Result<(), Failure> {
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()] {
        let mut signals =
            tokio::signal::unix::signal(kind).or_failed("SignalsFailed", "listen for signals")?;
        let requests = requests.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if requests.send(Request::Signal(kind.as_raw_value())).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(())
}

/// The cluster called `name`, or the only one.
fn find(state: &StateDir, name: Option<&str>, usable: impl Fn(&Record) -> bool) -> Result<FoundRun, Failure> {
    let mut found: Vec<FoundRun> = state
        .runs()
        .into_iter()
        .filter(|run| !run.kept)
        .filter(|run| {
            run.record.as_ref().is_some_and(|r| usable(r) && name.is_none_or(|n| r.name == n || r.id == n))
        })
        .collect();
    // A dead run is only of interest where nothing alive goes by the name.
    if found.iter().any(|run| run.alive) {
        found.retain(|run| run.alive);
    }
    let listed = |runs: &[FoundRun]| {
        let shown = runs.iter().filter_map(|r| r.record.as_ref()).map(|r| format!("{} ({})", r.name, r.id));
        shown.collect::<Vec<_>>().join(", ")
    };
    match (found.len(), name) {
        (1, _) => Ok(found.remove(0)),
        (0, Some(name)) => {
            Err(Failure::input(format!("--name {name}: there is no such cluster; see `gridcast local ps`")))
        }
        (0, None) => Err(Failure::input("there is no cluster; make one with `gridcast local up -f FILE`")),
        _ => Err(Failure::input(format!(
            "several clusters fit: {}; choose by --name (a name or an id)",
            listed(&found)
        ))),
    }
}
