//! What does a plan for a NetworkMap look at?

use std::sync::Arc;

use gridcast_core::report::Rows;
use gridcast_crds::{NetworkMap, conditions::RUNNING};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::measuring::Found;
use crate::{
    broadcast::{
        knowledge::Trouble,
        standing,
        targets::{Members, NodeAgent, Targets, agent_of, named, phase, resolve},
    },
    context::Context,
    operations::{Owner, State},
    stores::node_of,
};

/// Name of the operation that measures; its state is the [`Measurement`].
pub(crate) const MEASURE: &str = "measure";
/// Label by which a cluster says that its nodes are others than before.
const INCARNATION: &str = "gridcast.io/incarnation";

/// What this process knows of the last measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Measurement {
    /// What was measured: see [`Observed::key`].
    pub(crate) key: String,
    /// When it was begun.
    pub(crate) began: Timestamp,
    /// When it ended well, and what was found.
    pub(crate) found: Option<(Timestamp, Found)>,
    /// Why it did not.
    pub(crate) trouble: Option<Trouble>,
}

/// A host that is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// Its name in the map: that of the pod, or of the node.
    pub(crate) name: String,
    /// Its Kubernetes node.
    pub(crate) node: String,
    /// The pod, where it is one.
    pub(crate) pod: Option<HostPod>,
}

/// The pod whose network namespace is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPod {
    /// Its UID.
    pub(crate) uid: String,
    /// Its address.
    pub(crate) address: String,
    /// When it was made.
    pub(crate) created: Option<Timestamp>,
}

/// Who is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// These, in this order, all with an agent that answers.
    Known(Vec<Host>),
    /// They cannot be measured yet.
    Waiting {
        /// One PascalCase word.
        reason: String,
        /// What is waited for.
        message: String,
    },
}

/// Everything that a plan for a NetworkMap may look at.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object.
    pub(crate) object: Arc<NetworkMap>,
    /// Who is measured.
    pub(crate) hosts: Hosts,
    /// The cluster that is measured runs its program.
    pub(crate) busy: bool,
    /// What this process knows of the last measurement.
    pub(crate) last: Measurement,
    /// It goes on.
    pub(crate) running: bool,
}

impl Observed {
    pub(crate) fn new(context: &Context, object: &Arc<NetworkMap>) -> Self {
        let owner = Owner::of(&**object);
        let (last, running) = match context.operations.state::<Measurement>(&owner, MEASURE) {
            Some(State::Running(last)) => (last, true),
            Some(State::Done(last)) => (last, false),
            Some(State::Failed(_)) | None => (Measurement::default(), false),
        };
        let cluster = object.spec.of.virtual_cluster.as_ref();
        let busy = cluster
            .and_then(|cluster| context.stores.clusters.get(&owner.namespace, &cluster.name))
            .is_some_and(|cluster| {
                let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
                standing::find(conditions, RUNNING).is_some_and(|running| running.status == "True")
            });
        let hosts = match cluster {
            Some(cluster) => of_members(&Members::of(&context.stores, &owner.namespace, &cluster.name)),
            None => of_targets(resolve(&context.stores, &owner.namespace, &object.spec.of)),
        };
        Self { hosts: with_agents(context, hosts), busy, last, running, object: object.clone() }
    }

    /// What is to be measured, as a text that changes with it: the spec, and who the hosts are.
    pub(crate) fn key(&self, hosts: &[Host]) -> String {
        let label = self.object.labels().get(INCARNATION).map_or("", String::as_str);
        let mut key = format!("{}/{label}", self.object.metadata.generation.unwrap_or_default());
        for host in hosts {
            key.push('/');
            key.push_str(host.pod.as_ref().map_or(&host.name, |pod| &pod.uid));
        }
        key
    }
}

/// The members of a cluster, once all of them run and have an address.
fn of_members(members: &Members) -> Hosts {
    if let Some((reason, message)) = members.absent() {
        return Hosts::Waiting { reason: reason.to_owned(), message };
    }
    let hosts: Vec<Result<Host, String>> = members
        .wanted
        .iter()
        .map(|name| members.pods.get(name).and_then(|pod| host(name, pod)).ok_or_else(|| name.clone()))
        .collect();
    let waiting: Vec<String> = hosts.iter().filter_map(|host| host.as_ref().err().cloned()).collect();
    if !waiting.is_empty() {
        let message = format!(
            "{} of {} nodes of VirtualCluster {} {} not run yet: {}",
            waiting.len(),
            members.wanted.len(),
            members.cluster,
            if waiting.len() == 1 { "does" } else { "do" },
            named(&waiting)
        );
        return Hosts::Waiting { reason: "WaitingForPods".to_owned(), message };
    }
    let shared = members.wanted.iter().find(|name| {
        let spec = members.pods.get(*name).and_then(|pod| pod.spec.as_ref());
        spec.is_some_and(|spec| spec.host_network == Some(true))
    });
    if let Some(pod) = shared {
        let message = format!(
            "pod {pod} is in its node's own network, where agents measure nothing for it; leave out `hostNetwork`, or \
             measure the nodes by a NetworkMap of `nodes`"
        );
        return Hosts::Waiting { reason: "HostNetwork".to_owned(), message };
    }
    Hosts::Known(hosts.into_iter().filter_map(Result::ok).collect())
}

fn host(name: &str, pod: &Pod) -> Option<Host> {
    let status = pod.status.as_ref().filter(|_| phase(pod) == "Running")?;
    let address = status.pod_ip.clone().filter(|address| !address.is_empty())?;
    let created = pod.creation_timestamp().map(|time| time.0);
    let pod_ = HostPod { uid: pod.uid()?, address, created };
    Some(Host { name: name.to_owned(), node: node_of(pod)?.to_owned(), pod: Some(pod_) })
}

fn of_targets(targets: Targets) -> Hosts {
    match targets {
        Targets::Nodes(nodes) => {
            let host = |name: String| Host { node: name.clone(), name, pod: None };
            Hosts::Known(nodes.into_iter().map(host).collect())
        }
        Targets::Waiting { reason, message, .. } => Hosts::Waiting { reason: reason.to_owned(), message },
    }
}

/// Names the nodes whose agent does not answer.
fn with_agents(context: &Context, hosts: Hosts) -> Hosts {
    let Hosts::Known(hosts) = hosts else { return hosts };
    let silent: Vec<String> = hosts
        .iter()
        .filter_map(|host| match agent_of(context, &host.node) {
            NodeAgent::Ready { .. } => None,
            NodeAgent::Missing { message, .. } => Some(message),
            NodeAgent::Gone => Some(format!("there is no Kubernetes node {}", host.node)),
        })
        .collect();
    match silent.as_slice() {
        [] => Hosts::Known(hosts),
        [only] => Hosts::Waiting { reason: "NoAgent".to_owned(), message: only.clone() },
        [first, ..] => Hosts::Waiting {
            reason: "NoAgent".to_owned(),
            message: format!("{first} (and {} more nodes)", silent.len() - 1),
        },
    }
}

/// A matrix of this size with nothing in it.
pub(crate) fn blank(hosts: usize) -> Rows {
    vec![vec![None; hosts]; hosts]
}
