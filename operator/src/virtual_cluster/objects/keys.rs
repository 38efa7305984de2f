//! By what do members know each other?

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;

use super::Blueprint;
use crate::virtual_cluster::members::key_generation;

impl Blueprint<'_> {
    /// Name of the Secret. It carries the number of the keys, so that rotated ones are another object and nothing ever has
    /// to be read or changed; and a part of the cluster's UID, since the Secret of a cluster of the same name that was deleted
    /// a moment ago may still be there.
    pub fn keys_name(&self) -> String {
        let uid = self.cluster.metadata.uid.as_deref().unwrap_or_default();
        let uid = uid.split('-').next().unwrap_or_default();
        format!("{}-keys-{uid}-{}", self.name(), key_generation(self.cluster))
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
