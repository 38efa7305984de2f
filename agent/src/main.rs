//! `gridcast-agent`: one per node. Everything it does is asked for over gRPC with mutual TLS. With keys that somebody made
//! for it, it is an agent of a local run, or of a pod that reads or writes a user's volume; `gridcast-agent node` is that of
//! a Kubernetes node, `gridcast-agent fetch` runs before one that is a source, and brings it a file.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::{Args, Parser, Subcommand, ValueEnum};
use gridcast_agent::{Options, fetch, node, serve};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Workers of the runtime: the agent waits nearly always, and two let a probe's answer pass a busy relay.
const WORKERS: usize = 2;

/// The node agent of gridcast.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    plain: Option<Plain>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Fetch(fetch::Options),
    Node(Box<NodeArguments>),
}

/// The agent of a Kubernetes node. It gets its certificate from the operator.
#[derive(Args, Debug)]
struct NodeArguments {
    #[command(flatten)]
    node: node::Options,
    /// error, warn, info, debug or trace, or a filter like `info,gridcast_agent=debug`
    #[arg(long, env = "GRIDCAST_LOG", default_value = "info", value_name = "LEVEL")]
    log: EnvFilter,
    /// How the log is written, to stderr
    #[arg(long, env = "GRIDCAST_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// The agent with keys that somebody has made for it.
#[derive(Args, Debug)]
struct Plain {
    /// The node's name, as in its certificate
    #[arg(long)]
    name: String,
    /// Where to serve gRPC; [::] is every address of both families
    #[arg(long, default_value = "[::]:7411")]
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

fn main() -> anyhow::Result<ExitCode> {
    gridcast_agent::memory::share_heaps();
    let Arguments { command, plain } = Arguments::parse();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow!("a crypto provider was installed before aws-lc-rs"))?;
    match (command, plain) {
        (Some(Command::Fetch(options)), _) => run_fetch(options),
        (Some(Command::Node(arguments)), _) => run_node(*arguments).map(|()| ExitCode::SUCCESS),
        (None, Some(plain)) => run_plain(plain).map(|()| ExitCode::SUCCESS),
        // The parser asks for --name and the others by itself.
        (None, None) => Err(anyhow!("nothing to do: see --help")),
    }
}

/// SIGTERM or SIGINT.
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    Ok(async move {
        tokio::select! { _ = term.recv() => (), _ = interrupt.recv() => () }
    })
}

fn run_fetch(options: fetch::Options) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let code = runtime.block_on(async { anyhow::Ok(fetch::run(options, stop_signal()?).await) });
    // The name of the server may still be looked up.
    runtime.shutdown_background();
    code
}

fn run_plain(plain: Plain) -> anyhow::Result<()> {
    let Plain { name, listen, keys, state, probe_port, log } = plain;
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).with_ansi(false).init();
    let options = Options { name, listen, probe_port, keys, state };
    run(async { serve(options, stop_signal()?).await })
}

fn run_node(arguments: NodeArguments) -> anyhow::Result<()> {
    let NodeArguments { node, log, log_format } = arguments;
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).with_ansi(false);
    match log_format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => subscriber.json().init(),
    }
    tracing::info!(?node, "starting");
    run(async { node::serve(node, stop_signal()?).await })
}

fn run(agent: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        // Threads for files and probes go soon after their work; ten seconds is tokio's own choice.
        .thread_keep_alive(Duration::from_secs(1))
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(agent);
    // Threads that still copy or probe end with the process.
    runtime.shutdown_background();
    outcome
}
