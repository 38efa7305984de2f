//! What does kubelet's request ask for, and may it?

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use gridcast_proto::csi::v1::volume_capability::{AccessType, MountVolume};
use gridcast_proto::csi::v1::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest};
use thiserror::Error;
use tonic::Status;

/// Attributes with this prefix are kubelet's: it overwrites what a manifest says under these names.
const KUBELET: &str = "csi.storage.k8s.io/";

/// The specification's bound for identifiers is 128 bytes; kubelet's are 68.
const MAX_ID: usize = 256;

/// Longest name of an object (RFC 1123 subdomain).
const MAX_NAME: usize = 253;

/// A volume to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) id: String,
    pub(super) target: Target,
    /// Of the pod, as kubelet says.
    pub(super) namespace: String,
    pub(super) pod: String,
    /// Name of the Broadcast.
    pub(super) broadcast: String,
}

/// Where kubelet wants a volume: `…/pods/UID/volumes/kubernetes.io~csi/NAME/mount`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    pub(super) pod_uid: String,
}

/// Why a request is refused. Each ends in an event of the pod, for whoever wrote the manifest.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum RequestError {
    #[error("volume_id is missing or longer than {MAX_ID} bytes")]
    Id,
    #[error(
        "target_path {0:?} is not a volume of a pod: kubelet gives …/pods/UID/volumes/kubernetes.io~csi/NAME/mount"
    )]
    Target(String),
    #[error(
        "csi.gridcast.io has inline volumes only: write `csi:` in the pod's volumes, not in a PersistentVolume"
    )]
    Persistent,
    #[error(
        "kubelet did not say whose volume this is ({0}): the CSIDriver object csi.gridcast.io needs podInfoOnMount: true"
    )]
    PodInfo(&'static str),
    #[error("a Broadcast is mounted as a directory: remove volumeMode: Block")]
    Block,
    #[error("{0} means nothing for csi.gridcast.io: remove it from the volume")]
    Meaningless(&'static str),
    #[error("volumeAttributes.broadcast is missing: name a Broadcast of the pod's namespace")]
    NoBroadcast,
    #[error(
        "volumeAttributes.broadcast: {0:?} is not the name of an object: lower-case letters, digits, `-` and `.`, at most {MAX_NAME}"
    )]
    Name(String),
    #[error("volumeAttributes: unknown {0}: csi.gridcast.io knows `broadcast` only")]
    Unknown(String),
}

impl From<RequestError> for Status {
    fn from(error: RequestError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

/// Reads a publish request.
pub(super) fn publish(request: NodePublishVolumeRequest) -> Result<Volume, RequestError> {
    let NodePublishVolumeRequest {
        volume_id,
        target_path,
        volume_capability,
        // Always read-only, whatever is asked.
        readonly: _,
        secrets,
        volume_context,
    } = request;
    let id = volume_id_of(volume_id)?;
    let target = Target::parse(&target_path)?;
    match volume_capability.and_then(|capability| capability.access_type) {
        Some(AccessType::Block(_)) => return Err(RequestError::Block),
        Some(AccessType::Mount(MountVolume { fs_type, mount_flags, volume_mount_group: _ })) => {
            if !fs_type.is_empty() {
                return Err(RequestError::Meaningless("fsType"));
            }
            if !mount_flags.is_empty() {
                return Err(RequestError::Meaningless("mountOptions"));
            }
        }
        None => {}
    }
    if !secrets.is_empty() {
        return Err(RequestError::Meaningless("nodePublishSecretRef"));
    }
    let (namespace, pod) = pod_of(&volume_context, &target)?;
    let broadcast = broadcast_of(&volume_context)?;
    Ok(Volume { id, target, namespace, pod, broadcast })
}

/// Reads an unpublish request: the volume's id and its target.
pub(super) fn unpublish(request: NodeUnpublishVolumeRequest) -> Result<(String, Target), RequestError> {
    let NodeUnpublishVolumeRequest { volume_id, target_path } = request;
    Ok((volume_id_of(volume_id)?, Target::parse(&target_path)?))
}

fn volume_id_of(id: String) -> Result<String, RequestError> {
    if id.is_empty() || id.len() > MAX_ID { Err(RequestError::Id) } else { Ok(id) }
}

/// Namespace and name of the pod. kubelet writes them over whatever a manifest says; but only if the CSIDriver object
/// asks for it, and somebody may have changed that. The UID tells: the API server gives it after the manifest was
/// written, so that an attribute equal to the one in the path can only be kubelet's.
fn pod_of(attributes: &HashMap<String, String>, target: &Target) -> Result<(String, String), RequestError> {
    let get = |name: &'static str| {
        let value = attributes.get(&format!("{KUBELET}{name}"));
        value.filter(|value| !value.is_empty()).ok_or(RequestError::PodInfo(name))
    };
    if get("pod.uid")? != &target.pod_uid {
        return Err(RequestError::PodInfo("pod.uid"));
    }
    if get("ephemeral")? != "true" {
        return Err(RequestError::Persistent);
    }
    let namespace = get("pod.namespace")?;
    if !is_name(namespace) {
        return Err(RequestError::PodInfo("pod.namespace"));
    }
    Ok((namespace.clone(), get("pod.name")?.clone()))
}

fn broadcast_of(attributes: &HashMap<String, String>) -> Result<String, RequestError> {
    let mut unknown: Vec<String> = attributes
        .keys()
        .filter(|key| !key.starts_with(KUBELET) && *key != "broadcast")
        .map(|key| format!("{key:?}"))
        .collect();
    if !unknown.is_empty() {
        unknown.sort();
        return Err(RequestError::Unknown(unknown.join(", ")));
    }
    let name =
        attributes.get("broadcast").filter(|name| !name.is_empty()).ok_or(RequestError::NoBroadcast)?;
    if is_name(name) { Ok(name.clone()) } else { Err(RequestError::Name(name.clone())) }
}

/// An RFC 1123 subdomain.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let inside = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
        let bytes = label.as_bytes();
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inside)
    };
    text.len() <= MAX_NAME && text.split('.').all(label)
}

impl Target {
    /// Takes only what kubelet makes: this process is root and mounts and removes there.
    pub(super) fn parse(text: &str) -> Result<Self, RequestError> {
        let wrong = || RequestError::Target(text.to_owned());
        let path = Path::new(text);
        // Written in normal form: what is compared with the kernel's table of mounts must be spelt like it.
        let normal: PathBuf = path.components().collect();
        if !path.is_absolute() || normal.as_os_str() != path.as_os_str() {
            return Err(wrong());
        }
        Self::of(path).ok_or_else(wrong)
    }

    /// The same for a path of the table of mounts.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name.to_str()?),
                Component::RootDir => {}
                _ => return None,
            }
        }
        match names[..] {
            [.., "pods", uid, "volumes", "kubernetes.io~csi", _, "mount"] => {
                Some(Self { path: path.to_owned(), pod_uid: uid.to_owned() })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridcast_proto::csi::v1::VolumeCapability;
    use gridcast_proto::csi::v1::volume_capability::BlockVolume;

    const TARGET: &str = "/var/lib/kubelet/pods/11-22/volumes/kubernetes.io~csi/ics/mount";

    fn request(changes: &[(&str, Option<&str>)]) -> NodePublishVolumeRequest {
        let mut context: HashMap<String, String> = [
            ("broadcast", "ics"),
            ("csi.storage.k8s.io/ephemeral", "true"),
            ("csi.storage.k8s.io/pod.name", "a"),
            ("csi.storage.k8s.io/pod.namespace", "team"),
            ("csi.storage.k8s.io/pod.uid", "11-22"),
            ("csi.storage.k8s.io/serviceAccount.name", "default"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        for (key, value) in changes {
            match value {
                Some(value) => context.insert((*key).to_owned(), (*value).to_owned()),
                None => context.remove(*key),
            };
        }
        NodePublishVolumeRequest {
            volume_id: "csi-1".into(),
            target_path: TARGET.into(),
            volume_context: context,
            ..Default::default()
        }
    }

    #[test]
    fn what_kubelet_sends_is_understood() {
        let volume = publish(request(&[])).unwrap();
        assert_eq!((volume.namespace.as_str(), volume.broadcast.as_str()), ("team", "ics"));
        assert_eq!(volume.target.pod_uid, "11-22");
    }

    #[test]
    fn what_a_manifest_must_not_say_is_named() {
        let said = |changes: &[(&str, Option<&str>)]| publish(request(changes)).unwrap_err().to_string();
        assert!(said(&[("size", Some("1")), ("path", Some("/"))]).contains(r#""path", "size""#));
        assert!(said(&[("broadcast", None)]).contains("volumeAttributes.broadcast is missing"));
        for name in ["../etc", "A", "a..b", "-a", "a-", "", "a/b", "a\nb", &"a".repeat(254)] {
            assert!(said(&[("broadcast", Some(name))]).contains("volumeAttributes.broadcast"), "{name}");
        }
        assert!(said(&[("csi.storage.k8s.io/ephemeral", Some("false"))]).contains("inline volumes only"));
        let mut with_type = request(&[]);
        let mount = MountVolume { fs_type: "ext4".into(), ..Default::default() };
        with_type.volume_capability = Some(VolumeCapability { access_type: Some(AccessType::Mount(mount)) });
        assert_eq!(publish(with_type), Err(RequestError::Meaningless("fsType")));
        let mut block = request(&[]);
        block.volume_capability =
            Some(VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})) });
        assert_eq!(publish(block), Err(RequestError::Block));
    }

    #[test]
    fn a_namespace_that_kubelet_did_not_write_is_not_believed() {
        // As a manifest would, were podInfoOnMount off: everything but the UID can be guessed.
        for uid in [None, Some(""), Some("33-44")] {
            let refused = publish(request(&[("csi.storage.k8s.io/pod.uid", uid)]));
            assert_eq!(refused, Err(RequestError::PodInfo("pod.uid")));
        }
        let refused = publish(request(&[("csi.storage.k8s.io/pod.namespace", Some("../x"))]));
        assert_eq!(refused, Err(RequestError::PodInfo("pod.namespace")));
    }

    #[test]
    fn only_volumes_of_pods_are_targets() {
        assert!(Target::parse(TARGET).is_ok());
        assert!(Target::parse(&TARGET.replace("/var/lib", "/data/k0s")).is_ok());
        for wrong in [
            "",
            "/",
            "/etc",
            "var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/a/mount",
            "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/../mount",
            "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/a/mount/",
            "/var/lib/kubelet//pods/1/volumes/kubernetes.io~csi/a/mount",
            "/var/lib/kubelet/pods/1/volumes/kubernetes.io~csi/a/mount/b",
            "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/a/mount",
        ] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }
}
