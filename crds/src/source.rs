//! Where does a dataset come from, and how is it spread?

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The origin of a dataset: exactly one member is given.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[x_kube(
    validation = Rule::new(
        "[has(self.node), has(self.persistentVolumeClaim), has(self.configMap), has(self.secret), has(self.http), \
         has(self.s3)].filter(given, given).size() == 1"
    )
    .message(
        "must have exactly one of `node`, `persistentVolumeClaim`, `configMap`, `secret`, `http` and `s3`"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// A directory or file of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeSource>,
    /// A directory of a volume in the object's own namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimPath>,
    /// The keys of a ConfigMap in the object's own namespace, one file each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map: Option<ConfigMapSource>,
    /// The keys of a Secret in the object's own namespace, one file each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretSource>,
    /// A file behind a URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpSource>,
    /// Objects of an S3 bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3: Option<S3Source>,
}

/// A path on a node.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct NodeSource {
    /// Absolute path of a directory or file.
    #[schemars(length(min = 2, max = 1024), regex(pattern = r"^/[^\x00-\x1f\x7f]+$"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(part, part == '..')").message("must not contain '..' as a part"))]
    pub path: String,
    /// Kubernetes node that has it. The first node of the cluster if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: Option<String>,
}

/// A directory of a volume.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimPath {
    /// Name of a PersistentVolumeClaim in the object's own namespace.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub claim_name: String,
    /// Path below the volume's root. The root if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[^/\x00-\x1f\x7f][^\x00-\x1f\x7f]*$"))]
    #[x_kube(validation = Rule::new("!self.split('/').exists(part, part == '..')").message("must not contain '..' as a part"))]
    pub path: Option<String>,
}

/// The keys of a ConfigMap.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapSource {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub name: String,
}

/// The keys of a Secret.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SecretSource {
    /// Its name.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: String,
}

/// A file behind a URL; its name is the last part of the URL's path.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HttpSource {
    /// The URL, http or https, without credentials in it.
    #[schemars(length(min = 9, max = 2048), regex(pattern = r"^https?://[^\s\x00-\x1f\x7f@#]+$"))]
    pub url: String,
    /// Secret in the object's own namespace whose key `authorization` is sent as that header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: Option<String>,
}

/// Objects of an S3 bucket.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct S3Source {
    /// The bucket.
    #[schemars(length(min = 3, max = 63), regex(pattern = r"^[a-z0-9][-a-z0-9.]*[a-z0-9]$"))]
    pub bucket: String,
    /// Only objects whose key begins so; the rest of the key becomes the path. Every object if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[^\x00-\x1f\x7f]+$"))]
    pub prefix: Option<String>,
    /// The endpoint's URL. That of AWS in `region` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 9, max = 2048), regex(pattern = r"^https?://[^\s\x00-\x1f\x7f@#]+$"))]
    pub endpoint: Option<String>,
    /// The region. `us-east-1` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z0-9][-a-z0-9]*$"))]
    pub region: Option<String>,
    /// Secret in the object's own namespace with the keys `accessKeyID` and `secretAccessKey`. Anonymous if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"))]
    pub secret_name: Option<String>,
}

/// How a dataset is spread. All but `Stable` are there for comparison.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Strategy {
    /// Every node receives at its own maximum bandwidth; a slow node slows nobody.
    #[default]
    Stable,
    /// The source sends to each node.
    Flat,
    /// One pipeline in order of descending bandwidth.
    Chain,
    /// One tree in random order, from a fixed seed.
    Random,
    /// One tree, depth first.
    DepthFirst,
    /// Trees from Fast Parallel File Replication.
    Fpfr,
    /// The tree of widest paths, behind the latest of the best parents.
    Dijkstra,
    /// The same, behind the earliest of the best parents.
    DijkstraEarliest,
}

impl Source {
    /// The member that is given, as the manifest names it. `None` where the rule was not checked.
    pub fn kind(&self) -> Option<&'static str> {
        [
            ("node", self.node.is_some()),
            ("persistentVolumeClaim", self.persistent_volume_claim.is_some()),
            ("configMap", self.config_map.is_some()),
            ("secret", self.secret.is_some()),
            ("http", self.http.is_some()),
            ("s3", self.s3.is_some()),
        ]
        .into_iter()
        .find_map(|(name, given)| given.then_some(name))
    }
}
