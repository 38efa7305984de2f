//! How does gridcast leave a cluster?
//!
//! Every object of the three kinds is deleted while the operator and its agents are still there, since they restore
//! settings and remove data before an object goes. What does not go in time is named with what holds it.

use std::{fmt::Debug, time::Duration};

use anyhow::{Context as _, bail};
use gridcast_crds::{Broadcast, NetworkMap, VirtualCluster};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams},
    core::{NamespaceResourceScope, PartialObjectMeta},
};
use tokio::time::Instant;

/// From one look at what remains to the next.
const LOOKS: Duration = Duration::from_secs(1);
/// Objects of one page of a list.
const PAGE: u32 = 500;
/// Objects that a failure names.
const NAMED: usize = 20;

/// Deletes all objects of the three kinds and waits until they have gone. Those of `namespace` only, if one is given: what
/// the operator does not watch is another's, and nobody would serve its finalizers.
pub async fn uninstall(client: Client, namespace: Option<&str>, timeout: Duration) -> anyhow::Result<()> {
    let ends = Instant::now() + timeout;
    let mut told = usize::MAX;
    loop {
        // Clusters first: what they own is deleted with them.
        let mut left = delete_all::<VirtualCluster>(&client, namespace).await?;
        left.extend(delete_all::<Broadcast>(&client, namespace).await?);
        left.extend(delete_all::<NetworkMap>(&client, namespace).await?);
        if left.is_empty() {
            tracing::info!("nothing is left");
            return Ok(());
        }
        if left.len() != told {
            tracing::info!(objects = left.len(), "waiting for objects to go");
            told = left.len();
        }
        if Instant::now() + LOOKS > ends {
            let more = left.len().saturating_sub(NAMED);
            left.truncate(NAMED);
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            bail!(
                "not gone after {} s: {}{more}; see the log of the operator, or give up what their finalizers would \
                 restore with `kubectl patch KIND NAME --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'`",
                timeout.as_secs(),
                left.join(", ")
            );
        }
        tokio::time::sleep(LOOKS).await;
    }
}

/// Deletes the objects of one kind that are not yet asked to go, and names all that are there.
async fn delete_all<K>(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<String>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug,
{
    let all: Api<PartialObjectMeta<K>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut page = ListParams::default().limit(PAGE);
    let mut left = Vec::new();
    loop {
        let list = match all.list_metadata(&page).await {
            Ok(list) => list,
            // The definition is gone, and all objects with it.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(left),
            Err(error) => return Err(error).with_context(|| format!("cannot list {}", K::plural(&()))),
        };
        for object in &list.items {
            let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
            let held = object.finalizers().join(" ");
            let held = if held.is_empty() { held } else { format!(" (held by {held})") };
            left.push(format!("{} {namespace}/{name}{held}", K::kind(&())));
            if object.metadata.deletion_timestamp.is_none() {
                let api: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), &namespace);
                match api.delete(&name, &DeleteParams::background()).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => {
                        return Err(error)
                            .with_context(|| format!("cannot delete {} {namespace}/{name}", K::kind(&())));
                    }
                }
            }
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(left),
        }
    }
}
