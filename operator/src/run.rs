//! Starts what the command line asks for, and stops it.

use std::{
    io::{IsTerminal as _, Write as _},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use gridcast_crds::{Broadcast, NetworkMap, VirtualCluster, definitions};
use gridcast_proto::v1::certificates_server::CertificatesServer;
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;
use tracing_subscriber::EnvFilter;

use crate::{
    args::{Args, Command, LogArgs, LogFormat, OperatorArgs},
    authority::{self, service},
    context::Context,
    http,
    lease::Candidate,
    listen::Listener,
    reconcile::control,
    uninstall::uninstall,
    watch::watch,
};

/// Threads. The operator waits nearly always; two keep it answering while one makes a thousand pods.
const THREADS: usize = 2;
/// From one look whether the watches have delivered to the next.
const LOOKS: Duration = Duration::from_millis(20);
/// An agent that asks for a certificate and falls silent is dropped after so long.
const CALL: Duration = Duration::from_secs(30);

/// Does what `args` ask for; operating goes on until SIGINT or SIGTERM.
pub fn command(args: &Args) -> anyhow::Result<()> {
    let Args { operator, log, command } = args;
    match command {
        Some(Command::Crds) => print_definitions(),
        Some(Command::Uninstall { timeout_seconds }) => {
            start_log(log)?;
            let (namespace, timeout) = (operator.watch_namespace(), Duration::from_secs(*timeout_seconds));
            runtime()?.block_on(async { uninstall(connect().await?, namespace.as_deref(), timeout).await })
        }
        None => {
            start_log(log)?;
            runtime()?.block_on(operate(operator))
        }
    }
}

fn print_definitions() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for (_, text) in definitions::yaml() {
        writeln!(out, "---\n{}", text.trim_end()).context("cannot write the definitions")?;
    }
    Ok(())
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot start threads")
}

async fn connect() -> anyhow::Result<Client> {
    Client::try_default().await.context("cannot find a cluster; set KUBECONFIG or run in a pod")
}

async fn operate(args: &OperatorArgs) -> anyhow::Result<()> {
    let settings = args.settings();
    let client = connect().await?;
    let mut stop = Stop::new()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        ?settings,
        leader_elect = args.leader_elect,
        "starting"
    );
    let authority = authority::load_or_create(client.clone(), &settings.namespace).await?;
    let context = Arc::new(Context::new(client, settings, authority, jiff::Timestamp::now));
    let (http, certificates) = (listen(args.http_port).await?, listen(args.certificates_port).await?);
    let candidate = args.leader_elect.then(|| {
        let me = args.pod_name.clone().filter(|name| !name.is_empty()).unwrap_or_else(host_name);
        Candidate::new(context.client.clone(), &context.settings.namespace, me, context.now)
    });
    tokio::select! {
        result = http::serve(http, context.clone()) => result.context("cannot serve health and metrics"),
        result = issue(certificates, &context) => result.context("cannot serve certificates"),
        () = watch(context.clone()) => anyhow::bail!("the watches ended"),
        result = lead(context.clone(), candidate, stop.asked()) => result,
    }
}

/// Reconciles while this replica leads, until `stop`, which lets go of the lease. Fails if the lease is lost. What was under
/// way has ended when this returns, and before the lease is let go of: another replica may lead in a moment.
pub async fn lead(
    context: Arc<Context>,
    mut candidate: Option<Candidate>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    tokio::pin!(stop);
    let begin = async {
        synced(&context).await;
        if let Some(candidate) = &mut candidate {
            candidate.win().await;
        }
    };
    tokio::select! {
        () = begin => {}
        () = &mut stop => return Ok(()),
    }
    context.metrics.set_leader(true);
    let keep = async {
        match &mut candidate {
            Some(candidate) => candidate.keep().await,
            None => std::future::pending().await,
        }
    };
    let lost = tokio::select! {
        lost = keep => Some(lost),
        () = reconcile(context.clone()) => None,
        () = &mut stop => None,
    };
    context.metrics.set_leader(false);
    context.operations.close().await;
    if let Some(lost) = lost {
        return Err(lost.into());
    }
    if let Some(candidate) = candidate {
        candidate.release().await;
    }
    tracing::info!("stopped");
    Ok(())
}

/// Waits until the watches have delivered what there is: a plan that misses pods would make them again.
pub async fn synced(context: &Context) {
    while !context.stores.synced() {
        tokio::time::sleep(LOOKS).await;
    }
}

/// Reconciles all kinds until it is dropped.
pub async fn reconcile(context: Arc<Context>) {
    tokio::join!(
        control::<VirtualCluster>(context.clone()),
        control::<Broadcast>(context.clone()),
        control::<NetworkMap>(context),
    );
}

/// Issues certificates to agents, as every replica does.
async fn issue(listener: Listener, context: &Context) -> anyhow::Result<()> {
    let service = service::Service::new(
        context.client.clone(),
        context.authority.clone(),
        &context.settings.namespace,
        context.metrics.clone(),
    );
    let service = CertificatesServer::new(service).max_decoding_message_size(service::MOST_MESSAGE_BYTES);
    Server::builder()
        .tls_config(context.authority.certificate_service_tls()?)?
        .timeout(CALL)
        // One call a connection is what agents do.
        .max_concurrent_streams(4)
        .max_connection_age(2 * CALL)
        .http2_keepalive_interval(Some(CALL))
        .add_service(service)
        .serve_with_incoming(listener.connections())
        .await?;
    Ok(())
}

async fn listen(port: u16) -> anyhow::Result<Listener> {
    Listener::bind(port).await.with_context(|| format!("cannot listen on port {port}"))
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => format!("process-{}", std::process::id()),
        name => name.to_owned(),
    }
}

fn start_log(args: &LogArgs) -> anyhow::Result<()> {
    let LogArgs { log, log_format } = args;
    let filter = EnvFilter::try_new(log).with_context(|| format!("--log: cannot read {log:?}"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// SIGINT and SIGTERM.
struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the first.
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
