//! `gridcast-csi`: the volume plugin of a node. See [`gridcast_agent::csi`].

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use gridcast_agent::csi;
use gridcast_core::failure::chain;
use nix::sys::stat::{Mode, umask};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Mounts broadcasts into the pods of a Kubernetes node.
#[derive(Debug, Parser)]
#[command(name = "gridcast-csi", version)]
struct Arguments {
    #[command(flatten)]
    options: csi::Options,
    /// error, warn, info, debug or trace, or a filter like `info,gridcast_agent=debug`
    #[arg(long, env = "GRIDCAST_LOG", default_value = "info", value_name = "LEVEL")]
    log: EnvFilter,
    /// How lines of the log are written
    #[arg(long, env = "GRIDCAST_LOG_FORMAT", default_value = "text")]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

fn main() -> ExitCode {
    gridcast_agent::memory::share_heaps();
    let Arguments { options, log, log_format } = Arguments::parse();
    let lines = tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).with_ansi(false);
    match log_format {
        LogFormat::Text => lines.init(),
        LogFormat::Json => lines.json().init(),
    }
    // The sockets are for root only from their first moment.
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("gridcast-csi: {text}");
            ExitCode::FAILURE
        }
    }
}

/// One thread: what there is to do is to wait.
fn run(options: csi::Options) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| format!("no runtime: {error}"))?.block_on(async {
        let unheard = |error: std::io::Error| format!("cannot wait for signals: {error}");
        let mut term = signal(SignalKind::terminate()).map_err(unheard)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(unheard)?;
        let stop = async move {
            tokio::select! { _ = term.recv() => (), _ = interrupt.recv() => () }
        };
        csi::run(options, stop).await.map_err(|error| chain(&error))
    })
}
