//! Starts what the command line asks for, and stops it.

use std::io::Write as _;

use anyhow::Context as _;
use futures::{FutureExt as _, future::Shared};
use gridcast_crds::definitions;
use kube::Client;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::{
    args::{Args, Command, LogFormat},
};

/// Does what `args` ask for; watching goes on until SIGINT or SIGTERM.
pub fn command(args: &Args) -> anyhow::Result<()> {
    match args.command {
        Some(Command::Crds) => print_definitions(),
        None => watch(args),
    }
}

fn print_definitions() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for (_, text) in definitions::yaml() {
        writeln!(out, "---\n{}", text.trim_end()).context("cannot write the definitions")?;
    }
    Ok(())
}

#[tokio::main]
async fn watch(args: &Args) -> anyhow::Result<()> {
    start_log(args)?;
    let client =
        Client::try_default().await.context("cannot find a cluster; set KUBECONFIG or run in a pod")?;
    let stop = stop()?;
    tracing::info!(namespace = args.namespace.as_deref().unwrap_or("all"), "watching");
    let _ = client;
    stop.await;
    tracing::info!("stopped");
    Ok(())
}

fn start_log(args: &Args) -> anyhow::Result<()> {
    let filter =
        EnvFilter::try_new(&args.log).with_context(|| format!("--log: cannot read {:?}", args.log))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match args.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// Resolves on the first SIGINT or SIGTERM.
fn stop() -> anyhow::Result<Shared<impl Future<Output = ()> + Send + Sync + 'static>> {
    let listen = |kind| signal(kind).context("cannot listen to signals");
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move { either(&mut interrupt, &mut terminate).await }.shared())
}

async fn either(a: &mut Signal, b: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
    }
}
