//! The nodes of one kind.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;

/// Nodes that are alike: `<cluster>-<name>-0` and on.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[x_kube(
    validation = Rule::new("has(self.pod) != has(self.virtualMachine)")
        .message("must have exactly one of `pod` and `virtualMachine`")
)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Name, unique in the cluster.
    #[schemars(length(min = 1, max = 24), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Number of nodes.
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// Processes that one node takes: `slots=N max_slots=N` in the machinefile. 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1024))]
    pub slots: Option<i32>,
    /// The pod of each node, as in a Deployment. Its first container is the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "bounds::pod_template")]
    pub pod: Option<PodTemplateSpec>,
    /// The KubeVirt VirtualMachineInstance of each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_machine: Option<VirtualMachine>,
}

/// The VirtualMachineInstance of each node of a group.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMachine {
    /// Labels of the instance.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::string_map")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the instance.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "bounds::string_map")]
    pub annotations: BTreeMap<String, String>,
    /// A `VirtualMachineInstanceSpec` of `kubevirt.io/v1`, which KubeVirt checks. Host name and cloud-init are added.
    #[schemars(schema_with = "bounds::foreign_object")]
    pub spec: serde_json::Map<String, serde_json::Value>,
}

impl Group {
    /// Processes that one node takes.
    pub fn slots(&self) -> u32 {
        self.slots.unwrap_or(1).unsigned_abs()
    }
}
