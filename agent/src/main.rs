//! `gridcast-agent`: one per node. Everything it does is asked for over gRPC with mutual TLS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Parser;
use gridcast_agent::{Options, serve};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Workers of the runtime: the agent waits nearly always, and two let a probe's answer pass a busy relay.
const WORKERS: usize = 2;

/// The node agent of gridcast.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The node's name, as in its certificate
    #[arg(long)]
    name: String,
    /// Where to serve gRPC
    #[arg(long, default_value = "0.0.0.0:7411")]
    listen: SocketAddr,
    /// Directory with ca.pem, cert.pem and key.pem
    #[arg(long)]
    keys: PathBuf,
    /// Directory for what must outlive the agent
    #[arg(long)]
    state: PathBuf,
    /// UDP and TCP port for probes of peers; the same on every node
    #[arg(long, default_value_t = 7413, value_parser = clap::value_parser!(u16).range(1..))]
    probe_port: u16,
    /// error, warn, info, debug or trace, or a filter like `info,gridcast_agent=debug`
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    log: EnvFilter,
}

fn main() -> anyhow::Result<()> {
    gridcast_agent::memory::share_heaps();
    let Arguments { name, listen, keys, state, probe_port, log } = Arguments::parse();
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).with_ansi(false).init();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a crypto provider was installed before aws-lc-rs"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        // Threads for files and probes go soon after their work; ten seconds is tokio's own choice.
        .thread_keep_alive(Duration::from_secs(1))
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        let mut term = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
        let stop = async move {
            tokio::select! { _ = term.recv() => (), _ = interrupt.recv() => () }
        };
        serve(Options { name, listen, probe_port, keys, state }, stop).await
    });
    // Threads that still copy or probe end with the process.
    runtime.shutdown_background();
    outcome
}
