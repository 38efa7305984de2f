//! Which pod reads or writes a user's volume for gridcast?
//!
//! Neither operator nor agent may touch users' Secrets, ConfigMaps and volumes. A pod of the object's own namespace does:
//! it mounts what it is told, runs the plain agent with keys that are good for this one purpose, and goes when it is done.
//! A *source* pod reads a dataset for a Broadcast ([`Role::Source`]), a *collect* pod writes the results of a run
//! ([`Role::Collect`]).
//!
//! The data lies at [`ORIGIN`], whichever way it came there.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
        EnvVarSource, LocalObjectReference, PersistentVolumeClaimVolumeSource, Pod, PodSecurityContext,
        PodSpec, ResourceRequirements, SeccompProfile, SecretKeySelector, SecretVolumeSource,
        SecurityContext, Toleration, Volume, VolumeMount,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{ObjectMeta, OwnerReference},
    },
};

use crate::context::Settings;

/// Where the pod has the data: the volume's root, the keys of the ConfigMap or Secret, or the file that was fetched.
pub const ORIGIN: &str = "/gridcast/origin";
/// Where it has its keys.
const KEYS: &str = "/gridcast/keys";
/// Where its agent keeps what it keeps.
const STATE: &str = "/gridcast/state";
/// Who reads what everybody may read: nobody in particular, so that the pod runs under the `restricted` profile.
const NOBODY: i64 = 65_532;
/// The agent ends at once; what it does not finish is begun again by another pod.
const GRACE_SECONDS: i64 = 2;
/// Readable by whatever user the pod runs as; nothing else in the pod could read it.
const KEYS_MODE: i32 = 0o444;

/// The image of agent and starter, and how kubelet gets it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentImage {
    /// The reference.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`; kubelet's choice if absent.
    pub pull_policy: Option<String>,
    /// Names of Secrets in the object's namespace.
    pub pull_secrets: Vec<String>,
    /// The cluster assigns users to pods that name none, and refuses those that name one outside its range.
    pub assigned_users: bool,
}

impl From<&Settings> for AgentImage {
    fn from(settings: &Settings) -> Self {
        Self {
            image: settings.agent_image.clone(),
            pull_policy: settings.image_pull_policy.clone(),
            pull_secrets: settings.image_pull_secrets.clone(),
            assigned_users: settings.assigned_users,
        }
    }
}

/// What the pod is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads a dataset.
    Source,
    /// It writes results.
    Collect,
}

impl Role {
    /// The value of `app.kubernetes.io/name`.
    pub fn app(self) -> &'static str {
        match self {
            Self::Source => "gridcast-source",
            Self::Collect => "gridcast-collect",
        }
    }
}

/// What the pod has at [`ORIGIN`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mount {
    /// A PersistentVolumeClaim, its root. A path below is asked for by path: as `subPath` kubelet would make it where it
    /// is missing, and an empty dataset would look like one that was read.
    Claim {
        /// Name of the claim.
        claim: String,
        /// Written by collect pods only.
        read_only: bool,
    },
    /// The keys of a ConfigMap, one file each.
    ConfigMap {
        /// Its name.
        name: String,
    },
    /// The keys of a Secret, one file each.
    Secret {
        /// Its name.
        name: String,
    },
    /// A file that an init container fetches into an `emptyDir`.
    Fetch {
        /// The URL.
        url: String,
        /// Secret whose key `authorization` is sent as that header.
        authorization: Option<String>,
    },
}

/// A pod that runs the plain agent beside a user's data.
#[derive(Clone, Debug)]
pub struct AuxiliaryPod {
    /// Name of the pod.
    pub name: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object, as its controller.
    pub owner: OwnerReference,
    /// What it is for.
    pub role: Role,
    /// Labels beside `app.kubernetes.io/name` and `app.kubernetes.io/managed-by`.
    pub labels: BTreeMap<String, String>,
    /// The name that its peers verify: the UID of the Broadcast, or a member's name.
    pub peer_name: String,
    /// Secret with `ca.pem`, `cert.pem`, `key.pem` and perhaps `domain`.
    pub keys_secret: String,
    /// What is at [`ORIGIN`].
    pub mount: Mount,
    /// Who reads or writes. If absent: nobody in particular where anybody may read, else root without capabilities.
    pub security_context: Option<PodSecurityContext>,
    /// Labels of nodes on which it may run.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints that it tolerates.
    pub tolerations: Vec<Toleration>,
}

impl AuxiliaryPod {
    /// The object, for a plain POST.
    pub fn pod(&self, image: &AgentImage) -> Pod {
        let mut labels = self.labels.clone();
        labels.extend(sidecar_labels());
        labels.insert("app.kubernetes.io/managed-by".into(), "gridcast".into());
        labels.insert("app.kubernetes.io/name".into(), self.role.app().into());
        Pod {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(labels),
                annotations: Some(without_sidecars()),
                owner_references: Some(vec![self.owner.clone()]),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec(image)),
            status: None,
        }
    }

    fn spec(&self, image: &AgentImage) -> PodSpec {
        let secrets = image.pull_secrets.iter().map(|name| LocalObjectReference { name: name.clone() });
        let mut agent =
            container("agent", image, &["--name", &self.peer_name, "--keys", KEYS, "--state", STATE]);
        agent.ports = Some(vec![ContainerPort {
            name: Some("grpc".into()),
            container_port: 7411,
            ..ContainerPort::default()
        }]);
        agent.volume_mounts =
            Some(vec![self.origin_mount(), mount("keys", KEYS, true), mount("state", STATE, false)]);
        PodSpec {
            restart_policy: Some("Never".into()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            image_pull_secrets: some(secrets.collect()),
            security_context: self.security_context.clone().or_else(|| self.default_user(image)),
            node_selector: self.node_selector.clone(),
            tolerations: some(self.tolerations.clone()),
            init_containers: self.fetch(image).map(|fetch| vec![fetch]),
            containers: vec![agent],
            volumes: Some(vec![self.origin(), secret_volume("keys", &self.keys_secret), scratch("state")]),
            ..PodSpec::default()
        }
    }

    /// What everybody may read needs no particular user; a claim's files have owners, whom only the user can name.
    fn default_user(&self, image: &AgentImage) -> Option<PodSecurityContext> {
        let user = (!image.assigned_users).then_some(NOBODY);
        let nobody = PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: user,
            run_as_group: user,
            ..PodSecurityContext::default()
        };
        (!matches!(self.mount, Mount::Claim { .. })).then_some(nobody)
    }

    fn origin(&self) -> Volume {
        let mut volume = Volume { name: "origin".into(), ..Volume::default() };
        match &self.mount {
            Mount::Claim { claim, read_only } => {
                volume.persistent_volume_claim = Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim.clone(),
                    read_only: read_only.then_some(true),
                });
            }
            Mount::ConfigMap { name } => {
                volume.config_map =
                    Some(ConfigMapVolumeSource { name: name.clone(), ..ConfigMapVolumeSource::default() });
            }
            Mount::Secret { name } => {
                volume.secret = Some(SecretVolumeSource {
                    secret_name: Some(name.clone()),
                    ..SecretVolumeSource::default()
                });
            }
            Mount::Fetch { .. } => volume.empty_dir = Some(EmptyDirVolumeSource::default()),
        }
        volume
    }

    fn origin_mount(&self) -> VolumeMount {
        let writable = matches!(self.mount, Mount::Claim { read_only: false, .. });
        let mut origin = mount("origin", ORIGIN, !writable);
        // kubelet keeps the keys in a directory behind this link, and links to them beside it: the dataset is the files.
        if matches!(self.mount, Mount::ConfigMap { .. } | Mount::Secret { .. }) {
            origin.sub_path = Some("..data".into());
        }
        origin
    }

    fn fetch(&self, image: &AgentImage) -> Option<Container> {
        let Mount::Fetch { url, authorization } = &self.mount else { return None };
        let mut fetch = container("fetch", image, &["fetch", "--url", url, "--directory", ORIGIN]);
        fetch.volume_mounts = Some(vec![mount("origin", ORIGIN, false)]);
        fetch.env = authorization.as_ref().map(|secret| {
            vec![EnvVar {
                name: "GRIDCAST_AUTHORIZATION".into(),
                value: None,
                value_from: Some(EnvVarSource {
                    secret_key_ref: Some(SecretKeySelector {
                        name: secret.clone(),
                        key: "authorization".into(),
                        optional: None,
                    }),
                    ..EnvVarSource::default()
                }),
            }]
        });
        Some(fetch)
    }
}

/// Annotations that keep the known injectors of sidecars out: a sidecar changes the network of a pod, which is measured
/// here, and one that does not end keeps a pod alive that has.
pub fn without_sidecars() -> BTreeMap<String, String> {
    pairs(&[
        ("appmesh.k8s.aws/sidecarInjectorWebhook", "disabled"),
        ("consul.hashicorp.com/connect-inject", "false"),
        ("kuma.io/sidecar-injection", "disabled"),
        ("linkerd.io/inject", "disabled"),
        ("openservicemesh.io/sidecar-injection", "disabled"),
        ("sidecar.istio.io/inject", "false"),
    ])
}

/// The same as labels, for those that look at labels.
pub fn sidecar_labels() -> BTreeMap<String, String> {
    pairs(&[("kuma.io/sidecar-injection", "disabled"), ("sidecar.istio.io/inject", "false")])
}

fn pairs(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// What a container of ours may do: nothing beyond its user, so that it passes the `restricted` profile wherever the
/// pod's own user does.
pub(crate) fn confined() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add: None }),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), localhost_profile: None }),
        ..SecurityContext::default()
    }
}

/// A container of our image. Why it failed is the end of what it wrote.
fn container(name: &str, image: &AgentImage, arguments: &[&str]) -> Container {
    let quantities = |list: &[(&str, &str)]| {
        Some(list.iter().map(|(name, value)| ((*name).to_owned(), Quantity((*value).to_owned()))).collect())
    };
    Container {
        name: name.into(),
        image: Some(image.image.clone()),
        image_pull_policy: image.pull_policy.clone(),
        command: Some(vec!["gridcast-agent".into()]),
        args: Some(arguments.iter().map(|&argument| literal(argument)).collect()),
        security_context: Some(confined()),
        resources: Some(ResourceRequirements {
            requests: quantities(&[("cpu", "50m"), ("memory", "64Mi")]),
            limits: quantities(&[("memory", "1Gi")]),
            claims: None,
        }),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

/// `argument` as it is: kubelet replaces `$(NAME)` in arguments, and a URL may have one; of `$$` it makes `$`.
pub(crate) fn literal(argument: &str) -> String {
    argument.replace('$', "$$")
}

pub(crate) fn secret_volume(name: &str, secret: &str) -> Volume {
    Volume {
        name: name.into(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.into()),
            default_mode: Some(KEYS_MODE),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }
}

pub(crate) fn scratch(name: &str) -> Volume {
    Volume { name: name.into(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

pub(crate) fn mount(name: &str, path: &str, read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.into(),
        mount_path: path.into(),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// An absent list rather than an empty one: the API server leaves out empty ones, and what we sent should be what is there.
pub(crate) fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auxiliary(mount: Mount) -> AuxiliaryPod {
        AuxiliaryPod {
            name: "ics-0-source".into(),
            namespace: "lab".into(),
            owner: OwnerReference {
                api_version: "gridcast.io/v1alpha1".into(),
                kind: "Broadcast".into(),
                name: "ics".into(),
                uid: "6f1e".into(),
                ..OwnerReference::default()
            },
            role: Role::Source,
            labels: pairs(&[("gridcast.io/broadcast-uid", "6f1e")]),
            peer_name: "6f1e".into(),
            keys_secret: "ics-keys".into(),
            mount,
            security_context: None,
            node_selector: None,
            tolerations: Vec::new(),
        }
    }

    fn pod(mount: Mount) -> Pod {
        auxiliary(mount).pod(&AgentImage {
            image: "registry.example/agent:1".into(),
            pull_policy: Some("IfNotPresent".into()),
            pull_secrets: vec!["registry".into()],
            assigned_users: false,
        })
    }

    #[test]
    fn a_claim_is_read_by_who_may_read_it() {
        insta::assert_yaml_snapshot!(pod(Mount::Claim { claim: "ics".into(), read_only: true }));
    }

    #[test]
    fn a_url_is_fetched_first_and_its_dollars_are_kept() {
        insta::assert_yaml_snapshot!(pod(Mount::Fetch {
            url: "https://data.example/ics?token=$(HOME)&a=$b".into(),
            authorization: Some("data-server".into()),
        }));
    }

    #[test]
    fn where_the_cluster_assigns_users_none_is_named() {
        let image = AgentImage { assigned_users: true, ..AgentImage::default() };
        let pod = auxiliary(Mount::ConfigMap { name: "namelist".into() }).pod(&image);
        let context = pod.spec.unwrap().security_context.unwrap();
        assert_eq!(
            (context.run_as_user, context.run_as_group, context.run_as_non_root),
            (None, None, Some(true))
        );
    }

    #[test]
    fn the_keys_of_a_config_map_are_files_not_links() {
        for mount in [Mount::ConfigMap { name: "namelist".into() }, Mount::Secret { name: "namelist".into() }]
        {
            let spec = pod(mount).spec.unwrap();
            let origin = &spec.containers[0].volume_mounts.as_ref().unwrap()[0];
            assert_eq!((origin.mount_path.as_str(), origin.sub_path.as_deref()), (ORIGIN, Some("..data")));
            assert_eq!(origin.read_only, Some(true));
            assert_eq!(spec.security_context.unwrap().run_as_non_root, Some(true));
        }
    }

    #[test]
    fn results_are_written_to_a_claim() {
        let spec = pod(Mount::Claim { claim: "results".into(), read_only: false }).spec.unwrap();
        assert_eq!(spec.containers[0].volume_mounts.as_ref().unwrap()[0].read_only, None);
        assert_eq!(spec.volumes.unwrap()[0].persistent_volume_claim.as_ref().unwrap().read_only, None);
    }
}
