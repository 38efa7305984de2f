//! What happens when something ends, and how nodes are placed.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When the program is started again.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// Restarts of the whole launch before the cluster has failed.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub max_restarts: i32,
    /// The first that matches decides. A lost node restarts and any other failure is final if none does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rules: Vec<RestartRule>,
}

/// What to do after some exit codes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RestartRule {
    /// Exit codes of the program; 128 + signal where one ended it.
    #[schemars(length(min = 1, max = 32), inner(range(min = 1, max = 255)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub exit_codes: Vec<i32>,
    /// What to do.
    pub action: RestartAction,
}

/// What to do after an exit code.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum RestartAction {
    /// Start again, and count it.
    #[default]
    Restart,
    /// Start again without counting it: the program was interrupted by no fault of its own.
    Ignore,
    /// The cluster has failed.
    Fail,
}

/// Which pods are removed at the end.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Cleanup {
    /// None: look into them.
    None,
    /// Those that still run.
    #[default]
    Running,
    /// All.
    All,
}

/// How the nodes are placed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Scheduling {
    /// Who places all nodes at once.
    pub gang: Gang,
    /// Queue of Kueue that admits the cluster. No queue if absent or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"))]
    pub queue_name: Option<String>,
    /// Seconds that each wait may take before the cluster has failed: for nodes that have no place, do not run or do not answer, and
    /// for what hinders measuring or tuning. Counted anew when the nodes are complete or no longer are, and when the data is
    /// there; placed nodes that wait for data are not late. Pods that write results are waited for as long.
    #[schemars(range(min = 1, max = 604_800))]
    pub timeout_seconds: i32,
    /// Whether two nodes of the cluster may share a machine.
    pub allow_colocation: bool,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self { gang: Gang::None, queue_name: None, timeout_seconds: 600, allow_colocation: true }
    }
}

/// Who places all nodes of a cluster at once.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Gang {
    /// Nobody.
    #[default]
    None,
    /// The scheduler-plugins' `PodGroup`.
    Coscheduling,
    /// Volcano's `PodGroup`.
    Volcano,
}
