//! The command line.

use clap::{Parser, Subcommand, ValueEnum};

/// Watches VirtualClusters, Broadcasts and NetworkMaps and says in their conditions what becomes of them.
///
/// Connects as kubectl does: the kubeconfig of `KUBECONFIG` or the user, else the service account of the pod. This
/// version provisions no nodes yet; `gridcast local run -f FILE` runs the same manifests on one machine.
#[derive(Debug, Parser)]
#[command(name = "gridcast-operator", version)]
pub struct Args {
    /// Watch this namespace only. All namespaces if absent.
    #[arg(long, env = "GRIDCAST_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How the log is written, to stderr.
    #[arg(long, env = "GRIDCAST_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What is logged, as in `info,kube=debug`.
    #[arg(long, env = "GRIDCAST_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Something else than watching.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do instead of watching.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Print the CustomResourceDefinitions as YAML, for `kubectl apply -f -`.
    Crds,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}
