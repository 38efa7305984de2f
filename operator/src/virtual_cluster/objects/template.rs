//! What of a pod template does gridcast have to refuse?
//!
//! A template is embedded whole and given to the API server as it is. Refused is only what contradicts what a member needs:
//! silently overwritten, it would be a field that is ignored.

use gridcast_crds::{VirtualCluster, virtual_cluster::Group};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};

/// Where a member keeps what gridcast gives it.
pub const HOME: &str = "/gridcast";
/// Volumes and containers whose names begin so are gridcast's.
pub const RESERVED: &str = "gridcast";

/// Why no pod can be made from a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// It contradicts what a member needs.
    #[error("{field}: {problem}")]
    Invalid {
        /// Path from the object's root.
        field: String,
        /// What is wrong, and the next step.
        problem: String,
    },
    /// This version cannot do it.
    #[error("{field}: {problem}")]
    Unsupported {
        /// Path from the object's root.
        field: String,
        /// What is wrong, and the next step.
        problem: String,
    },
}

impl TemplateError {
    /// One PascalCase word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "InvalidPodTemplate",
            Self::Unsupported { .. } => "Unsupported",
        }
    }
}

/// Checks the templates of all groups; the first problem of the first group is told.
pub fn check(cluster: &VirtualCluster) -> Result<(), TemplateError> {
    cluster
        .spec
        .groups
        .iter()
        .enumerate()
        .try_for_each(|(index, group)| checked(cluster, group, index).map(drop))
}

/// The template of a group: its metadata beside, its spec, and its first container out of it.
pub(super) fn checked<'a>(
    cluster: &VirtualCluster,
    group: &'a Group,
    index: usize,
) -> Result<(&'a PodTemplateSpec, &'a PodSpec, &'a Container), TemplateError> {
    let path = format!("spec.groups[{index}].pod");
    let Some(template) = &group.pod else {
        return Err(TemplateError::Unsupported {
            field: format!("spec.groups[{index}].virtualMachine"),
            problem: "virtual machines are not provisioned by this version; give `pod` instead".into(),
        });
    };
    let invalid = |field: &str, problem: &str| TemplateError::Invalid {
        field: format!("{path}.{field}"),
        problem: problem.into(),
    };
    let Some(spec) = &template.spec else {
        return Err(invalid("spec", "is missing; give the pod of a node, as in a Deployment"));
    };
    let Some(node) = spec.containers.first() else {
        return Err(invalid("spec.containers", "is empty; the first container is the node"));
    };
    if template.metadata.as_ref().and_then(|m| m.finalizers.as_ref()).is_some_and(|f| !f.is_empty()) {
        return Err(invalid(
            "metadata.finalizers",
            "must be empty, or pods would stay when the cluster goes",
        ));
    }
    pod_level(spec, &path)?;
    names(spec, &path)?;
    first_container(node, &path)?;
    mounts(cluster, node, &path)?;
    Ok((template, spec, node))
}

fn pod_level(spec: &PodSpec, path: &str) -> Result<(), TemplateError> {
    let field = |name: &str| format!("{path}.spec.{name}");
    let unsupported = |name: &str, problem: &str| {
        Err(TemplateError::Unsupported { field: field(name), problem: problem.into() })
    };
    let invalid = |name: &str, problem: &str| {
        Err(TemplateError::Invalid { field: field(name), problem: problem.into() })
    };
    if spec.host_network == Some(true) {
        return unsupported(
            "hostNetwork",
            "members with the network of their machine are not supported: two of them could not share a port, and TCP \
             settings would be the machine's own; leave it out",
        );
    }
    if spec.set_hostname_as_fqdn == Some(true) {
        return unsupported(
            "setHostnameAsFQDN",
            "a member is called as in the machinefile, by one DNS label; leave it out",
        );
    }
    if spec.restart_policy.as_deref().is_some_and(|policy| policy != "Never") {
        return invalid(
            "restartPolicy",
            "must be Never or absent: a node that ended is replaced as a whole, by `spec.restart`",
        );
    }
    if spec.hostname.is_some() {
        return invalid("hostname", "must be absent: it is the member's name");
    }
    if spec.subdomain.is_some() {
        return invalid("subdomain", "must be absent: it is the cluster's name");
    }
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        return unsupported("os.name", "members are Linux");
    }
    Ok(())
}

fn names(spec: &PodSpec, path: &str) -> Result<(), TemplateError> {
    let taken = |field: String, name: &str| {
        let ours = name == RESERVED || name.strip_prefix(RESERVED).is_some_and(|rest| rest.starts_with('-'));
        let problem =
            format!("{name:?} is a name of gridcast's own; choose one that does not begin with {RESERVED:?}");
        if ours { Err(TemplateError::Invalid { field, problem }) } else { Ok(()) }
    };
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        taken(format!("{path}.spec.volumes[{index}].name"), &volume.name)?;
    }
    for (index, container) in spec.containers.iter().enumerate() {
        taken(format!("{path}.spec.containers[{index}].name"), &container.name)?;
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        taken(format!("{path}.spec.initContainers[{index}].name"), &container.name)?;
    }
    Ok(())
}

fn first_container(node: &Container, path: &str) -> Result<(), TemplateError> {
    for (name, given) in [("command", &node.command), ("args", &node.args)] {
        if given.as_ref().is_some_and(|list| !list.is_empty()) {
            return Err(TemplateError::Invalid {
                field: format!("{path}.spec.containers[0].{name}"),
                problem: "must be absent: the first container is the node, and gridcast-starter is its first process; put \
                          the MPI program into `spec.run.command`, anything else into a further container"
                    .into(),
            });
        }
    }
    Ok(())
}

fn mounts(cluster: &VirtualCluster, node: &Container, path: &str) -> Result<(), TemplateError> {
    for (index, mount) in node.volume_mounts.iter().flatten().enumerate() {
        let at = mount.mount_path.trim_end_matches('/');
        let problem = if is_at_or_below(at, HOME) {
            format!("{at} is where gridcast keeps what it gives a node; choose another path")
        } else if at == "/etc/hosts" {
            "/etc/hosts is written by gridcast, with the addresses of all members; use `hostAliases` for further names"
                .to_owned()
        } else if let Some(data) = cluster.spec.data.iter().find(|data| is_at_or_below(at, &data.mount_path))
        {
            format!(
                "{at} is where dataset {:?} of `spec.data` is mounted, which is read-only; choose another path",
                data.name
            )
        } else {
            continue;
        };
        return Err(TemplateError::Invalid {
            field: format!("{path}.spec.containers[0].volumeMounts[{index}].mountPath"),
            problem,
        });
    }
    Ok(())
}

fn is_at_or_below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
