//! Which Broadcasts and which NetworkMap does a cluster need?

use std::collections::BTreeMap;

use gridcast_crds::{
    Broadcast, BroadcastSpec, NetworkMap, NetworkMapSpec,
    broadcast::{BroadcastTo, Retain, SourcePod, VirtualClusterReference},
    source::{NodeSource, Source},
    virtual_cluster::Data,
};
use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec, SecurityContext};

use super::Blueprint;
use crate::virtual_cluster::FINALIZER;

/// Most trees of a plan; the schema's own default, which server-side apply would otherwise fill in for us to disown.
const MAX_TREES: i32 = 16;
/// Who reads where the members may not be root and are nobody in particular.
const NOBODY: i64 = 65_532;

impl Blueprint<'_> {
    /// Name of the Broadcast that carries `data`.
    pub fn broadcast_name(&self, data: &Data) -> String {
        format!("{}-{}", self.name(), data.name)
    }

    /// The Broadcast of one dataset. None while it cannot be said where it comes from: a source on "the first node" is known
    /// when that has a place, and a Broadcast's source is immutable.
    ///
    /// `first_node` is the Kubernetes node of the first member.
    pub fn broadcast(&self, data: &Data, first_node: Option<&str>) -> Option<Broadcast> {
        let mut metadata = self.metadata(self.broadcast_name(data));
        metadata.finalizers = Some(vec![FINALIZER.into()]);
        let spec = BroadcastSpec {
            source: source(&data.source, first_node)?,
            to: self.to(),
            path: None,
            strategy: data.strategy(),
            max_trees: MAX_TREES,
            rate_limit_mbps: None,
            ttl_seconds_after_finished: None,
            retain: Retain::Delete,
            source_pod: self.source_pod(),
        };
        Some(Broadcast { metadata, spec, status: None })
    }

    /// The NetworkMap of the members.
    pub fn network_map(&self) -> NetworkMap {
        let probe = self.cluster.spec.probe();
        let spec = NetworkMapSpec {
            of: self.to(),
            payload_bytes: probe.payload_bytes,
            count: probe.count,
            bandwidth: probe.bandwidth,
            interval_seconds: None,
        };
        NetworkMap { metadata: self.metadata(self.name().into()), spec, status: None }
    }

    fn to(&self) -> BroadcastTo {
        BroadcastTo {
            virtual_cluster: Some(VirtualClusterReference { name: self.name().into() }),
            ..BroadcastTo::default()
        }
    }

    /// Who reads the source: the user of the first group's nodes, and where those may run.
    fn source_pod(&self) -> Option<SourcePod> {
        let spec = self.first_template()?;
        let (node_selector, tolerations) = self.where_members_run();
        let pod = SourcePod {
            security_context: user_of(spec, self.image.assigned_users),
            node_selector,
            tolerations,
        };
        (pod != SourcePod::default()).then_some(pod)
    }

    /// The pod template of the first group that has nodes.
    pub(super) fn first_template(&self) -> Option<&PodSpec> {
        let spec = &self.cluster.spec;
        let group = spec.groups.iter().find(|group| spec.replicas_of(group) > 0)?;
        group.pod.as_ref()?.spec.as_ref()
    }

    /// Labels and taints of the machines that carry the first group.
    pub(super) fn where_members_run(
        &self,
    ) -> (Option<BTreeMap<String, String>>, Vec<k8s_openapi::api::core::v1::Toleration>) {
        let Some(spec) = self.first_template() else { return (None, Vec::new()) };
        // More than the schema of a Broadcast takes is rather left out than refused: it only helps to find a machine.
        let selector = spec.node_selector.clone().filter(|labels| (1..=16).contains(&labels.len()));
        let tolerations = spec.tolerations.clone().unwrap_or_default().into_iter().take(16).collect();
        (selector, tolerations)
    }
}

/// A source that says which node it is on.
fn source(given: &Source, first_node: Option<&str>) -> Option<Source> {
    let mut source = given.clone();
    if let Some(NodeSource { name: name @ None, .. }) = &mut source.node {
        *name = Some(first_node?.to_owned());
    }
    Some(source)
}

/// As whom the first container of `spec` runs, in the terms of a whole pod; None where the template leaves it to the image,
/// or to a cluster that has users `assigned` to pods.
pub(super) fn user_of(spec: &PodSpec, assigned: bool) -> Option<PodSecurityContext> {
    let pod = spec.security_context.clone().unwrap_or_default();
    let node = spec.containers.first().and_then(|node| node.security_context.clone());
    let SecurityContext { run_as_user, run_as_group, run_as_non_root, se_linux_options, .. } =
        node.unwrap_or_default();
    let not_root = run_as_non_root.or(pod.run_as_non_root);
    let nobody = (not_root == Some(true) && !assigned).then_some(NOBODY);
    let user = run_as_user.or(pod.run_as_user).or(nobody)?;
    Some(PodSecurityContext {
        run_as_user: Some(user),
        run_as_group: run_as_group.or(pod.run_as_group),
        run_as_non_root: not_root,
        se_linux_options: se_linux_options.or(pod.se_linux_options),
        fs_group: pod.fs_group,
        fs_group_change_policy: pod.fs_group_change_policy,
        supplemental_groups: pod.supplemental_groups,
        supplemental_groups_policy: pod.supplemental_groups_policy,
        seccomp_profile: pod.seccomp_profile,
        app_armor_profile: pod.app_armor_profile,
        ..PodSecurityContext::default()
    })
}
