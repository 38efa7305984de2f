//! What does every reconciliation have at hand?

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use kube::Client;

use crate::{
    agents::Agents, authority::Authority, events::Events, failure::Backoff, metrics::Metrics,
    operations::Operations, queue::Queues, stores::Stores,
};

/// What the command line says of the cluster and of what the operator makes in it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The operator's own namespace: its Lease, root and agents.
    pub namespace: String,
    /// The only namespace whose objects are watched. All if absent.
    pub watch_namespace: Option<String>,
    /// Image of agent and starter.
    pub agent_image: String,
    /// When kubelet pulls it. kubelet's own rule if absent.
    pub image_pull_policy: Option<String>,
    /// Names of the Secrets that pods in users' namespaces pull it with.
    pub image_pull_secrets: Vec<String>,
    /// The cluster assigns users to pods that name none.
    pub assigned_users: bool,
    /// gRPC port of the agents.
    pub agent_port: u16,
    /// gRPC port of the starters in the clusters' pods.
    pub starter_port: u16,
}

/// What every reconciliation has at hand.
pub struct Context {
    /// The cluster. Writes go through [`crate::apply`], which counts them.
    pub client: Client,
    /// What the command line says.
    pub settings: Settings,
    /// The clock, so that a test can have its own.
    pub now: fn() -> Timestamp,
    /// What is watched.
    pub stores: Arc<Stores>,
    /// What takes longer than a reconciliation.
    pub operations: Operations,
    /// Who signs certificates.
    pub authority: Arc<Authority>,
    /// How nodes' agents are reached.
    pub agents: Agents,
    /// What people are told of.
    pub events: Events,
    /// What is counted.
    pub metrics: Metrics,
    /// Where reconciliations wait.
    pub queues: Queues,
    /// What is remembered of VirtualClusters.
    pub clusters: crate::virtual_cluster::Memory,
    backoff: Mutex<Backoff>,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("settings", &self.settings)
            .field("stores", &self.stores)
            .field("operations", &self.operations)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// With empty stores; [`crate::watch`] fills them.
    pub fn new(client: Client, settings: Settings, authority: Authority, now: fn() -> Timestamp) -> Self {
        let (queues, stores) = (Queues::default(), Arc::new(Stores::default()));
        let (authority, metrics) = (Arc::new(authority), Metrics::new());
        Self {
            operations: Operations::new(queues.clone()),
            agents: Agents::new(stores.clone(), authority.clone(), settings.agent_port),
            events: Events::new(client.clone(), metrics.clone()),
            clusters: crate::virtual_cluster::Memory::default(),
            backoff: Mutex::default(),
            client,
            settings,
            now,
            stores,
            authority,
            metrics,
            queues,
        }
    }

    pub(crate) fn backoff<T>(&self, act: impl FnOnce(&mut Backoff) -> T) -> T {
        act(&mut self.backoff.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
