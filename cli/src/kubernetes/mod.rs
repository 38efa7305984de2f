//! How is a VirtualCluster of Kubernetes doing, and what came of it?
//!
//! Nothing but statuses is read: those of the cluster, its NetworkMap and its Broadcasts. Who may read these objects may
//! see all that is shown here.
//!
//! ```text
//! names       names of hosts, without the C library
//! api         the API server: reached, asked, watched
//! seen        what was read
//! compose       as a report, the same as a local run's
//! shown         as text for a terminal
//! ```

mod api;
mod compose;
mod names;
mod seen;
mod shown;
#[cfg(test)]
mod tests;

use std::{
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use gridcast_core::report::Report;

use crate::{
    args::{self, ReportOutput},
    failure::{Failure, OrFailed as _},
};

use api::{Change, Cluster};
use seen::Seen;

/// What changes together is shown together.
const TOGETHER: Duration = Duration::from_millis(100);
/// To the upper left corner; everything below is cleared, the terminal's memory too.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// `gridcast status NAME`
pub(crate) fn status(arguments: &args::Status) -> Result<ExitCode, Failure> {
    let runtime = runtime()?;
    runtime.block_on(async {
        let cluster = Cluster::open(&arguments.name, &arguments.place).await?;
        let seen = cluster.read().await?;
        if arguments.watch {
            watch(&cluster, seen, arguments.output).await?;
        } else {
            write(&text(&seen, arguments.output, true)?)?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The report of a cluster, whether or not it has ended.
pub(crate) fn report(name: &str, place: &args::Place) -> Result<Report, Failure> {
    runtime()?.block_on(async { Ok(compose::report(&Cluster::open(name, place).await?.read().await?)) })
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().or_failed("RuntimeFailed", "start")
}

fn text(seen: &Seen, output: ReportOutput, whole: bool) -> Result<String, Failure> {
    let json = match (output, whole) {
        (ReportOutput::Table, _) => return Ok(shown::text(seen)),
        (ReportOutput::Json, true) => serde_json::to_string_pretty(&seen.json()),
        (ReportOutput::Json, false) => serde_json::to_string(&seen.json()),
    };
    Ok(json.or_failed("OutputFailed", "encode the status")? + "\n")
}

/// Shows the cluster whenever what is shown changes. Ends when it is deleted, or nobody reads any more.
async fn watch(cluster: &Cluster, mut seen: Seen, output: ReportOutput) -> Result<(), Failure> {
    let redraw = output == ReportOutput::Table && io::stdout().is_terminal();
    let mut changes = cluster.changes();
    let mut last = String::new();
    loop {
        let now = text(&seen, output, false)?;
        if now != last {
            let between = match (redraw, output, last.is_empty()) {
                (true, _, _) => CLEAR,
                (false, ReportOutput::Table, false) => "\n---\n",
                _ => "",
            };
            if !write(&format!("{between}{now}"))? {
                return Ok(());
            }
            last = now;
        }
        let mut next = changes.next().await;
        let together = tokio::time::sleep(TOGETHER);
        tokio::pin!(together);
        loop {
            match next {
                Change::Seen(object) => {
                    if !seen.take(object) {
                        say(&format!("virtualcluster {} was deleted", seen.name()));
                        return Ok(());
                    }
                }
                Change::Trouble(text) => say(&text),
            }
            next = tokio::select! {
                () = &mut together => break,
                change = changes.next() => change,
            };
        }
    }
}

fn say(line: &str) {
    // A closed terminal changes nothing.
    let _ = writeln!(io::stderr(), "gridcast: {line}");
}

/// Whether there is still somebody who reads.
fn write(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        // `gridcast status … | head` is no failure.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(Failure::failed("OutputClosed", format!("cannot write to standard output: {error}")))
        }
    }
}
