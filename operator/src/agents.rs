//! How is the agent of a Kubernetes node reached?
//!
//! By the host address of its pod, with the node's name as what its certificate must say. A node's channel is made once
//! and kept while the address stays.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use gridcast_control::{Remote, StepFailure};
use gridcast_proto::v1::Peer;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tonic::transport::Channel;

use crate::{
    authority::Authority,
    stores::{Stores, node_of},
};

/// The agents. Clones share their channels.
#[derive(Clone)]
pub struct Agents {
    stores: Arc<Stores>,
    authority: Arc<Authority>,
    port: u16,
    /// By node. Bounded by the nodes that have an agent: others are dropped when one is added.
    channels: Arc<Mutex<HashMap<String, (SocketAddr, Channel)>>>,
    /// Nodes without any pod of an agent, since when. Bounded by the nodes that exist.
    absent: Arc<Mutex<HashMap<String, Timestamp>>>,
}

impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agents").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Agents {
    /// The agents that `stores` knows, on this port of their nodes.
    pub fn new(stores: Arc<Stores>, authority: Arc<Authority>, port: u16) -> Self {
        Self { stores, authority, port, channels: Arc::default(), absent: Arc::default() }
    }

    /// The agent of a node. Fails with reason `NoAgent` where there is none that is ready.
    pub fn of_node(&self, node: &str) -> Result<Remote, StepFailure> {
        let address = self.address(node)?;
        let channel = self.channel(node, address)?;
        Ok(Remote::new(node, peer(node, address), channel, None))
    }

    /// The agent of a pod's node, for what concerns the pod's network namespace: `name` is the pod's, its probes go to
    /// `pod_ip`.
    pub fn pod(&self, name: &str, uid: &str, pod_ip: &str, node: &str) -> Result<Remote, StepFailure> {
        let pod_address: IpAddr = pod_ip.parse().map_err(|_| {
            StepFailure::new("NoAddress", format!("pod {name}: its address {pod_ip:?} is no IP address"))
        })?;
        let address = self.address(node)?;
        let channel = self.channel(node, address)?;
        let peer = Peer {
            pod: uid.to_owned(),
            probe_address: pod_address.to_string(),
            probe_name: name.to_owned(),
            ..peer(node, address)
        };
        Ok(Remote::new(name, peer, channel, None))
    }

    /// The nodes whose agent is ready, sorted.
    pub fn nodes(&self) -> Vec<String> {
        let agents = self.stores.agents.all();
        let ready = agents.iter().filter(|agent| is_ready(agent)).filter_map(|agent| node_of(agent));
        let mut nodes: Vec<String> = ready.map(str::to_owned).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    /// Since when there has been no pod of an agent on a node, as seen by the calls of this; `None` while there is one,
    /// ready or not: the DaemonSet wants it there, so that it will answer.
    pub fn absent_since(&self, node: &str, now: Timestamp) -> Option<Timestamp> {
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.stores.agents_on(node).is_empty() {
            absent.remove(node);
            return None;
        }
        if !absent.contains_key(node) {
            absent.retain(|node, _| self.stores.nodes.get("", node).is_some());
        }
        Some(*absent.entry(node.to_owned()).or_insert(now))
    }

    fn address(&self, node: &str) -> Result<SocketAddr, StepFailure> {
        let agents = self.stores.agents_on(node);
        let ready = agents.iter().filter(|agent| is_ready(agent));
        // While one is replaced, the one that stays.
        let newest = ready.max_by_key(|agent| agent.metadata.creation_timestamp.as_ref().map(|time| time.0));
        let Some(agent) = newest else {
            let detail = match agents.as_slice() {
                [] => "there is no pod of the DaemonSet gridcast-agent on it; see whether its node selector and \
                       tolerations admit the node"
                    .to_owned(),
                [agent, ..] => format!(
                    "pod {} is not ready; see `kubectl -n {} describe pod {0}`",
                    agent.metadata.name.as_deref().unwrap_or_default(),
                    agent.metadata.namespace.as_deref().unwrap_or_default()
                ),
            };
            return Err(StepFailure::new(
                "NoAgent",
                format!("node {node} has no agent that answers: {detail}"),
            ));
        };
        let host = agent.status.as_ref().and_then(|status| status.host_ip.as_deref()).unwrap_or_default();
        let address: IpAddr = host.parse().map_err(|_| {
            StepFailure::new(
                "NoAgent",
                format!("node {node}: the address {host:?} of its agent is no IP address"),
            )
        })?;
        Ok(SocketAddr::new(address, self.port))
    }

    fn channel(&self, node: &str, address: SocketAddr) -> Result<Channel, StepFailure> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        match channels.get(node) {
            Some((known, channel)) if *known == address => return Ok(channel.clone()),
            _ => {}
        }
        let channel = self.authority.agent_channel(node, address)?;
        channels.retain(|node, _| !self.stores.agents_on(node).is_empty());
        channels.insert(node.to_owned(), (address, channel.clone()));
        Ok(channel)
    }
}

fn peer(node: &str, address: SocketAddr) -> Peer {
    Peer {
        name: node.to_owned(),
        address: address.ip().to_string(),
        port: u32::from(address.port()),
        ..Peer::default()
    }
}

/// Whether a pod says that it is ready, and does not go.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Root;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    fn agent(name: &str, node: &str, host: &str, ready: bool, second: u32) -> Pod {
        let status = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "namespace": "gridcast-system", "uid": name,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")
            },
            "spec": {"nodeName": node, "containers": []},
            "status": {"hostIP": host, "conditions": [{"type": "Ready", "status": status}]}
        }))
        .unwrap()
    }

    fn agents(pods: Vec<Pod>) -> Agents {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let stores = Arc::new(Stores::default());
        for pod in pods {
            stores.agents.take(Event::Apply(pod));
        }
        Agents::new(stores, Arc::new(Authority::new(Root::random().unwrap()).unwrap()), 7411)
    }

    #[tokio::test]
    async fn a_node_is_reached_by_its_newest_agent_that_is_ready() {
        let agents = agents(vec![
            agent("old", "n1", "10.0.0.1", true, 1),
            agent("new", "n1", "10.0.0.2", true, 2),
            agent("newest", "n1", "10.0.0.3", false, 3),
            agent("other", "n2", "fd00::2", true, 1),
        ]);
        assert_eq!(agents.nodes(), ["n1", "n2"]);
        let remote = agents.of_node("n1").unwrap();
        assert_eq!((remote.name.as_str(), remote.peer.name.as_str()), ("n1", "n1"));
        assert_eq!((remote.peer.address.as_str(), remote.peer.port), ("10.0.0.2", 7411));
        assert_eq!((remote.pod(), remote.peer.probe_address.as_str()), (String::new(), ""));

        let pod = agents.pod("ring-node-0", "uid", "10.1.0.7", "n2").unwrap();
        assert_eq!((pod.name.as_str(), pod.pod().as_str()), ("ring-node-0", "uid"));
        assert_eq!((pod.peer.name.as_str(), pod.peer.address.as_str()), ("n2", "fd00::2"));
        assert_eq!(
            (pod.peer.probe_address.as_str(), pod.peer.probe_name.as_str()),
            ("10.1.0.7", "ring-node-0")
        );
    }

    #[tokio::test]
    async fn a_node_is_without_an_agent_from_when_its_last_pod_has_gone() {
        let agents = agents(vec![agent("slow", "n1", "10.0.0.1", false, 1)]);
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(agents.absent_since("n1", at(10)), None, "one that is not ready may become so");
        agents.stores.agents.take(Event::Delete(agent("slow", "n1", "10.0.0.1", false, 1)));
        assert_eq!(agents.absent_since("n1", at(20)), Some(at(20)));
        assert_eq!(agents.absent_since("n1", at(30)), Some(at(20)));
        agents.stores.agents.take(Event::Apply(agent("new", "n1", "10.0.0.1", false, 2)));
        assert_eq!(agents.absent_since("n1", at(40)), None);
        agents.stores.agents.take(Event::Delete(agent("new", "n1", "10.0.0.1", false, 2)));
        assert_eq!(agents.absent_since("n1", at(50)), Some(at(50)));
    }

    #[tokio::test]
    async fn a_node_without_an_agent_says_what_to_look_at() {
        let agents = agents(vec![agent("slow", "n1", "10.0.0.1", false, 1)]);
        for (node, text) in [
            ("n1", "kubectl -n gridcast-system describe pod slow"),
            ("n2", "there is no pod of the DaemonSet gridcast-agent on it"),
        ] {
            let failure = agents.of_node(node).unwrap_err();
            assert_eq!(failure.reason, "NoAgent");
            assert!(failure.message.contains(text) && failure.message.contains(node), "{failure}");
        }
        assert_eq!(agents.pod("p", "u", "", "n1").unwrap_err().reason, "NoAddress");
        assert!(agents.nodes().is_empty());
    }
}
