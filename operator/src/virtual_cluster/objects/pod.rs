//! Which pod is a member of a cluster?
//!
//! The template of its group, whole, and what makes it a node:
//!
//! ```text
//! gridcast-install    init container, first: brings the starter, and the hosts file that kubelet would have made
//! /gridcast           emptyDir: bin, run, tmp, machinefile, hosts
//! /gridcast/keys      the cluster's keys
//! /etc/hosts          `hosts` of the emptyDir: kubelet leaves it alone, and the starter writes what the gate sends
//! /dev/shm            memory, as large as half of the container's limit
//! <mountPath>         one CSI volume for each dataset: kubelet waits until it is on the node, verified
//! gridcast-starter    the first container's first process
//! ```
//!
//! The launcher is the first member's starter. A pod of its own would cost another image start, and buys nothing: losing
//! it restarts the launch, as losing any member does.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Affinity, CSIVolumeSource, Container, EnvVar, LocalObjectReference, Pod, PodAffinityTerm,
        PodAntiAffinity, PodSecurityContext, PodSpec, ResourceRequirements, SecurityContext,
        TopologySpreadConstraint, Volume, VolumeMount,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};

use super::{
    Blueprint, GROUP_NAME, INDEX, Place, member_labels, select,
    shared_memory::shared_memory,
    template::{HOME, TemplateError, checked},
};
use crate::{
    auxiliary_pod::{confined, literal, mount, scratch, secret_volume, sidecar_labels, without_sidecars},
    virtual_cluster::members::Made,
};

/// The volume at [`HOME`].
const HOME_VOLUME: &str = "gridcast";
/// The volume of the keys.
const KEYS_VOLUME: &str = "gridcast-keys";
/// The init container.
pub const INSTALL: &str = "gridcast-install";
/// What a starter needs to end what it has started, seconds (its grace is five), unless the template says otherwise.
const GRACE_SECONDS: i64 = 8;
/// The user of our init container where the template forbids root and names nobody.
const NOBODY: i64 = 65_532;
/// The label by which machines are told apart.
const HOSTNAME: &str = "kubernetes.io/hostname";

impl Blueprint<'_> {
    /// The pod of one member, for a plain POST.
    pub fn pod(&self, place: &Place<'_>) -> Result<Pod, TemplateError> {
        let (template, spec, node) = checked(self.cluster, place.group, place.group_index)?;
        let given = template.metadata.clone().unwrap_or_default();
        let mut annotations = given.annotations.unwrap_or_default();
        annotations.extend(without_sidecars());
        Ok(Pod {
            metadata: ObjectMeta {
                name: Some(place.name.clone()),
                namespace: Some(self.namespace().into()),
                labels: Some(self.pod_labels(place, given.labels.unwrap_or_default())),
                annotations: Some(annotations),
                owner_references: Some(vec![self.owner()]),
                ..ObjectMeta::default()
            },
            spec: Some(self.pod_spec(place, spec.clone(), node.clone())),
            status: None,
        })
    }

    fn pod_labels(&self, place: &Place<'_>, given: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut labels = given;
        labels.extend(sidecar_labels());
        labels.extend(member_labels(self.name()));
        labels.insert(GROUP_NAME.into(), place.group.name.clone());
        labels.insert(INDEX.into(), place.index.to_string());
        let made = Made { keys: self.keys, ..Made::now(self.cluster, place.group) };
        labels.extend(made.labels().map(|(name, value)| (name.to_owned(), value)));
        labels
    }

    /// `given` with what makes a node. What the template says about the pod as a whole stays where it does not contradict.
    fn pod_spec(&self, place: &Place<'_>, given: PodSpec, node: Container) -> PodSpec {
        let mut spec = given;
        let install = self.install(&node, spec.security_context.as_ref());
        spec.init_containers.get_or_insert_default().insert(0, install);

        let mut volumes = vec![scratch(HOME_VOLUME), secret_volume(KEYS_VOLUME, &self.keys_name())];
        let mut mounts = vec![
            mount(HOME_VOLUME, HOME, false),
            mount(KEYS_VOLUME, &format!("{HOME}/keys"), true),
            VolumeMount { sub_path: Some("hosts".into()), ..mount(HOME_VOLUME, "/etc/hosts", false) },
        ];
        if let Some((volume, mount)) = shared_memory(&node) {
            volumes.push(volume);
            mounts.push(mount);
        }
        for (volume, mount) in self.datasets() {
            volumes.push(volume);
            mounts.push(mount);
        }
        spec.volumes.get_or_insert_default().extend(volumes);
        // There is a first container: `node` is a copy of it.
        if let Some(first) = spec.containers.first_mut() {
            *first = self.node(place, node, mounts);
        }

        let secrets = spec.image_pull_secrets.get_or_insert_default();
        for name in &self.image.pull_secrets {
            if secrets.iter().all(|secret| secret.name != *name) {
                secrets.push(LocalObjectReference { name: name.clone() });
            }
        }
        if secrets.is_empty() {
            spec.image_pull_secrets = None;
        }

        spec.restart_policy = Some("Never".into());
        spec.hostname = Some(place.name.clone());
        spec.subdomain = Some(self.name().into());
        spec.enable_service_links.get_or_insert(false);
        spec.automount_service_account_token.get_or_insert(false);
        spec.termination_grace_period_seconds.get_or_insert(GRACE_SECONDS);
        self.place(&mut spec);
        spec
    }

    /// The first container: the template's, with the starter as its first process.
    fn node(&self, place: &Place<'_>, given: Container, mounts: Vec<VolumeMount>) -> Container {
        let mut node = given;
        let starter = format!("{HOME}/bin/gridcast-starter");
        let keys = format!("{HOME}/keys");
        let command = [&starter, "serve", "--name", &place.name, "--listen", "[::]:7412", "--keys", &keys];
        node.command = Some(command.map(str::to_owned).to_vec());
        node.volume_mounts.get_or_insert_default().extend(mounts);
        // For those who work in the node by hand: `kubectl exec -it NODE -- mpirun -np 4 PROGRAM` finds all nodes. What the
        // template says wins; a launch brings its own.
        let env = node.env.get_or_insert_default();
        for (name, value) in super::machinefile::environment(self.cluster) {
            if env.iter().all(|given| given.name != name) {
                env.push(EnvVar { name, value: Some(literal(&value)), value_from: None });
            }
        }
        // Why a starter could not start is in what it wrote.
        node.termination_message_policy.get_or_insert("FallbackToLogsOnError".into());
        node
    }

    /// Brings the starter. It satisfies the `restricted` profile by itself wherever the node does.
    ///
    /// It asks for what the node's container asks for: a pod takes the greater of both, so nothing is added, a quota that
    /// wants every container to name a resource finds it named, and a Guaranteed pod stays one.
    fn install(&self, node: &Container, pod: Option<&PodSecurityContext>) -> Container {
        Container {
            name: INSTALL.into(),
            image: Some(self.image.image.clone()),
            image_pull_policy: self.image.pull_policy.clone(),
            command: Some(
                ["gridcast-starter", "install", "--to", "/gridcast/bin"].map(str::to_owned).to_vec(),
            ),
            volume_mounts: Some(vec![mount(HOME_VOLUME, HOME, false)]),
            security_context: Some(install_user(
                node.security_context.as_ref(),
                pod,
                self.image.assigned_users,
            )),
            resources: node.resources.as_ref().and_then(ordinary_resources),
            termination_message_policy: Some("FallbackToLogsOnError".into()),
            ..Container::default()
        }
    }

    /// One CSI volume for each dataset, read-only.
    fn datasets(&self) -> impl Iterator<Item = (Volume, VolumeMount)> {
        self.cluster.spec.data.iter().map(|data| {
            let name = format!("gridcast-data-{}", data.name);
            let volume = Volume {
                name: name.clone(),
                csi: Some(CSIVolumeSource {
                    driver: "csi.gridcast.io".into(),
                    read_only: Some(true),
                    volume_attributes: Some([("broadcast".to_owned(), self.broadcast_name(data))].into()),
                    ..CSIVolumeSource::default()
                }),
                ..Volume::default()
            };
            (volume, mount(&name, &data.mount_path, true))
        })
    }

    /// Two members on one machine: forbidden, or avoided where the template does not spread them itself.
    fn place(&self, spec: &mut PodSpec) {
        let members = select(member_labels(self.name()));
        let colocate = self.cluster.spec.scheduling.as_ref().is_none_or(|s| s.allow_colocation);
        if !colocate {
            let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
            let apart: &mut PodAntiAffinity = affinity.pod_anti_affinity.get_or_insert_default();
            apart.required_during_scheduling_ignored_during_execution.get_or_insert_default().push(
                PodAffinityTerm {
                    label_selector: Some(members),
                    topology_key: HOSTNAME.into(),
                    ..PodAffinityTerm::default()
                },
            );
        } else if spec.topology_spread_constraints.as_ref().is_none_or(Vec::is_empty) {
            spec.topology_spread_constraints = Some(vec![spread(members)]);
        }
    }
}

fn spread(members: LabelSelector) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        label_selector: Some(members),
        max_skew: 1,
        topology_key: HOSTNAME.into(),
        when_unsatisfiable: "ScheduleAnyway".into(),
        ..TopologySpreadConstraint::default()
    }
}

/// The node's user, so that the two can write each other's files where that is possible. An image of ours has root as its
/// user, which `runAsNonRoot` refuses: where no user is named, nor `assigned` by the cluster, it is nobody in particular.
fn install_user(
    node: Option<&SecurityContext>,
    pod: Option<&PodSecurityContext>,
    assigned: bool,
) -> SecurityContext {
    let mut user = confined();
    if let Some(node) = node {
        user.run_as_user = node.run_as_user;
        user.run_as_group = node.run_as_group;
        user.run_as_non_root = node.run_as_non_root;
        user.se_linux_options.clone_from(&node.se_linux_options);
    }
    let not_root =
        user.run_as_non_root.or_else(|| pod.and_then(|pod| pod.run_as_non_root)).unwrap_or_default();
    let not_root = not_root && !assigned;
    if not_root && user.run_as_user.is_none() && pod.is_none_or(|pod| pod.run_as_user.is_none()) {
        user.run_as_user = Some(NOBODY);
    }
    user
}

/// Processor, memory and disk of `given`; not its devices, which an init container would take from the node's container.
fn ordinary_resources(given: &ResourceRequirements) -> Option<ResourceRequirements> {
    let ordinary = |list: &Option<BTreeMap<String, _>>| {
        let kept = list
            .iter()
            .flatten()
            .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage"));
        Some(kept.map(|(name, quantity)| (name.clone(), Clone::clone(quantity))).collect::<BTreeMap<_, _>>())
            .filter(|kept| !kept.is_empty())
    };
    let own = ResourceRequirements {
        limits: ordinary(&given.limits),
        requests: ordinary(&given.requests),
        claims: None,
    };
    (own.limits.is_some() || own.requests.is_some()).then_some(own)
}
