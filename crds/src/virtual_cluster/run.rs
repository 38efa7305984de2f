//! The MPI program.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::source::ClaimPath;

/// The MPI program.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The MPI that the nodes have.
    #[serde(default)]
    pub implementation: Implementation,
    /// How `mpirun` starts its daemons on the other nodes.
    #[serde(default)]
    pub remote_shell: RemoteShell,
    /// Number of MPI processes.
    #[schemars(range(min = 1, max = 1_024_000))]
    pub processes: i32,
    /// The program and its arguments. No shell reads them.
    #[schemars(
        length(min = 1, max = 256),
        inner(length(min = 0, max = 32_768), regex(pattern = r"^[^\x00]*$"))
    )]
    #[x_kube(
        merge_strategy = ListMerge::Atomic,
        validation = Rule::new("size(self) == 0 || size(self[0]) > 0").message("must begin with the name of a program")
    )]
    pub command: Vec<String>,
    /// Directory in which every process starts. If absent, that of the node's container (`workingDir`, else the image's);
    /// locally the current directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^/[^\x00-\x1f\x7f]*$"))]
    pub working_directory: Option<String>,
    /// Variables of every process, beside those that the launcher sets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub environment: Vec<EnvironmentVariable>,
    /// What is brought home when the program has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub collect: Vec<Collect>,
    /// Allows more processes than slots.
    #[serde(default)]
    pub allow_oversubscribe: bool,
    /// Puts the host of its rank in front of each line of output.
    #[serde(default)]
    pub tag_output: bool,
}

/// The MPI that the nodes have.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Implementation {
    /// Open MPI 4 or 5.
    #[default]
    OpenMPI,
    /// MPICH 4.
    MPICH,
    /// Intel MPI.
    IntelMPI,
}

/// How `mpirun` starts its daemons on the other nodes.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum RemoteShell {
    /// Through `gridcast-starter`: no sshd, no keys in the image.
    #[default]
    Starter,
    /// Through the sshd of the image.
    SSH,
}

/// A variable of every process.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentVariable {
    /// Its name.
    #[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub name: String,
    /// Its value, on one line.
    #[schemars(length(max = 4096), regex(pattern = r"^[^\x00-\x08\x0a-\x1f\x7f]*$"))]
    pub value: String,
}

/// Something that is brought home when the program has ended.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Collect {
    /// File or directory, absolute or below `workingDirectory`. Brought from every node that has it, and put together.
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[^\x00-\x1f\x7f]+$"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(part, part == '..')").message("must not contain '..' as a part"))]
    pub path: String,
    /// Where it goes.
    pub to: CollectTo,
}

/// Where a result goes.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CollectTo {
    /// A directory of a volume in the object's own namespace.
    pub persistent_volume_claim: ClaimPath,
}
