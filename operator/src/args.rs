//! The command line.

use clap::{ArgAction, Parser, Subcommand, ValueEnum};
use gridcast_control::{AGENT_PORT, STARTER_PORT};

use crate::context::Settings;

/// Runs VirtualClusters, Broadcasts and NetworkMaps: makes their pods, has their network measured and tuned and their data
/// staged, starts their programs, and says in their conditions what becomes of them.
///
/// Connects as kubectl does: the kubeconfig of `KUBECONFIG` or the user, else the service account of the pod. `gridcast
/// local run -f FILE` runs the same manifests on one machine.
#[derive(Debug, Parser)]
#[command(name = "gridcast-operator", version)]
pub struct Args {
    /// What the operator is told.
    #[command(flatten)]
    pub operator: OperatorArgs,
    /// How it logs.
    #[command(flatten)]
    pub log: LogArgs,
    /// Something else than operating.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the operator is told.
#[derive(Clone, Debug, clap::Args)]
pub struct OperatorArgs {
    /// Watch this namespace only. All namespaces if absent.
    #[arg(long, env = "GRIDCAST_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Namespace of the operator itself: of its agents, Lease and root of keys.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE", default_value = "gridcast-system")]
    pub own_namespace: String,
    /// Name of this replica in the Lease. The host's name if absent.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,
    /// Image of agent and starter, for the pods in users' namespaces.
    #[arg(
        long,
        env = "GRIDCAST_AGENT_IMAGE",
        value_name = "IMAGE",
        default_value = concat!("ghcr.io/gridcast/agent:", env!("CARGO_PKG_VERSION"))
    )]
    pub agent_image: String,
    /// When kubelet pulls it: Always, `IfNotPresent` or Never. kubelet's own rule if absent.
    #[arg(long, env = "GRIDCAST_IMAGE_PULL_POLICY", value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub image_pull_policy: Option<String>,
    /// Secrets of the pods' namespaces that it is pulled with.
    #[arg(long, env = "GRIDCAST_IMAGE_PULL_SECRETS", value_name = "NAMES", value_delimiter = ',')]
    pub image_pull_secrets: Vec<String>,
    /// Name no user for the pods that read what everybody may read: the cluster assigns one, as OpenShift does.
    #[arg(
        long,
        env = "GRIDCAST_ASSIGNED_USERS",
        value_name = "BOOL",
        default_value_t = false,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub assigned_users: bool,
    /// gRPC port of the node agents.
    #[arg(long, env = "GRIDCAST_AGENT_PORT", value_name = "PORT", default_value_t = AGENT_PORT)]
    pub agent_port: u16,
    /// Port where agents get their certificates.
    #[arg(long, env = "GRIDCAST_CERTIFICATES_PORT", value_name = "PORT", default_value_t = 7410)]
    pub certificates_port: u16,
    /// Port of health and metrics.
    #[arg(long, env = "GRIDCAST_HTTP_PORT", value_name = "PORT", default_value_t = 8080)]
    pub http_port: u16,
    /// Reconcile only while holding the Lease, so that several replicas may run.
    #[arg(
        long,
        env = "GRIDCAST_LEADER_ELECT",
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub leader_elect: bool,
}

/// How the operator logs.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// How the log is written, to stderr.
    #[arg(long, env = "GRIDCAST_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, global = true)]
    pub log_format: LogFormat,
    /// What is logged, as in `info,kube=debug`.
    #[arg(long, env = "GRIDCAST_LOG", value_name = "FILTER", default_value = "info", global = true)]
    pub log: String,
}

/// What to do instead of operating.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Command {
    /// Print the CustomResourceDefinitions as YAML, for `kubectl apply -f -`.
    Crds,
    /// Delete every VirtualCluster, Broadcast and NetworkMap, and wait until they have gone. Of all namespaces, or of the one
    /// that --namespace names.
    Uninstall {
        /// How long to wait.
        #[arg(
            long,
            env = "GRIDCAST_UNINSTALL_TIMEOUT_SECONDS",
            value_name = "SECONDS",
            default_value_t = 240
        )]
        timeout_seconds: u64,
    },
}

/// How the log is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl OperatorArgs {
    /// The only namespace that is watched, if there is one.
    pub fn watch_namespace(&self) -> Option<String> {
        given(self.namespace.as_ref())
    }

    /// What reconciliations need to know of it.
    pub fn settings(&self) -> Settings {
        let Self {
            namespace: _,
            own_namespace,
            pod_name: _,
            agent_image,
            image_pull_policy,
            image_pull_secrets,
            assigned_users,
            agent_port,
            certificates_port: _,
            http_port: _,
            leader_elect: _,
        } = self;
        Settings {
            namespace: own_namespace.clone(),
            watch_namespace: self.watch_namespace(),
            agent_image: agent_image.clone(),
            image_pull_policy: given(image_pull_policy.as_ref()),
            image_pull_secrets: image_pull_secrets.iter().filter(|name| !name.is_empty()).cloned().collect(),
            assigned_users: *assigned_users,
            agent_port: *agent_port,
            // Each pod has its own network namespace, so that there is nothing to choose.
            starter_port: STARTER_PORT,
        }
    }
}

/// A variable of the environment that is empty is one that is not set.
fn given(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}
