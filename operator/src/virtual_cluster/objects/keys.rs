//! By what do members know each other?

use std::collections::BTreeMap;

use gridcast_crds::VirtualCluster;
use k8s_openapi::api::core::v1::Secret;

use super::Blueprint;

/// See [`Blueprint::keys_name`].
pub(in crate::virtual_cluster) fn keys_name(cluster: &VirtualCluster, keys: u64) -> String {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    let uid = uid.split('-').next().unwrap_or_default();
    format!("{name}-keys-{uid}-{keys}")
}

impl Blueprint<'_> {
    /// Name of the Secret. It carries the number of the keys, so that rotated ones are another object and nothing ever has
    /// to be read or changed; and a part of the cluster's UID, since the Secret of a cluster of the same name that was deleted
    /// a moment ago may still be there.
    pub fn keys_name(&self) -> String {
        keys_name(self.cluster, self.keys)
    }

    /// The Secret with the keys of all members: one pair for the whole cluster, since 5,000 would not fit. For a plain POST.
    pub fn keys_secret(&self, keys: BTreeMap<String, String>) -> Secret {
        Secret {
            metadata: self.metadata(self.keys_name()),
            type_: Some("Opaque".into()),
            immutable: Some(true),
            string_data: Some(keys),
            data: None,
        }
    }
}
