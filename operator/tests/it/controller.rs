//! What a user of the cluster sees of the operator.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{FutureExt as _, future::pending};
use gridcast_crds::{Broadcast, NetworkMap, Resource, VirtualCluster, parse};
use gridcast_operator::{kind::Kind, reconcile::Context, run::everything};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::{api::rbac::v1::ClusterRole, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use serde_json::json;

use crate::fakeapi::FakeApi;

const ALL: &str = r"
apiVersion: gridcast.io/v1alpha1
kind: VirtualCluster
metadata: {name: ring, namespace: default}
spec:
  groups:
  - name: node
    replicas: 4
    pod: {spec: {containers: [{name: node, image: mpi, resources: {limits: {cpu: 2}}}]}}
  run: {processes: 4, command: [ring]}
---
apiVersion: gridcast.io/v1alpha1
kind: Broadcast
metadata: {name: weights, namespace: default}
spec: {source: {http: {url: 'https://example.org/w'}}, to: {nodes: [a]}}
---
apiVersion: gridcast.io/v1alpha1
kind: NetworkMap
metadata: {name: rack, namespace: default}
spec: {of: {nodes: [a, b]}}
";

fn objects() -> (VirtualCluster, Broadcast, NetworkMap) {
    let mut documents = parse(ALL).unwrap().into_iter().map(|document| document.resource);
    let (
        Some(Resource::VirtualCluster(cluster)),
        Some(Resource::Broadcast(broadcast)),
        Some(Resource::NetworkMap(map)),
    ) = (documents.next(), documents.next(), documents.next())
    else {
        panic!("three kinds")
    };
    (*cluster, *broadcast, *map)
}

/// The wall clock of the simulation: tokio's paused clock, never the machine's.
fn virtual_now() -> Timestamp {
    static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    let start = *START.get_or_init(tokio::time::Instant::now);
    Timestamp::UNIX_EPOCH + tokio::time::Instant::now().saturating_duration_since(start)
}

fn start(api: &FakeApi) {
    let context = Arc::new(Context::new(api.client(), None, virtual_now));
    tokio::spawn(everything(context, pending().shared()));
}

async fn eventually<T>(mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..2000 {
        if let Some(value) = probe().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not reached within 100 simulated seconds");
}

fn api<K: Kind + kube::Resource<Scope = NamespaceResourceScope>>(client: &Client) -> Api<K> {
    Api::namespaced(client.clone(), "default")
}

/// What Flux and other users of kstatus make of an object.
#[derive(Debug, PartialEq)]
enum Kstatus {
    InProgress,
    Failed,
    Current,
}

fn kstatus<K: Kind>(object: &K) -> Kstatus {
    let is = |type_: &str, status: &str| {
        object.conditions().iter().any(|c| c.type_ == type_ && c.status == status)
    };
    if object.observed_generation() != object.meta().generation || is("Reconciling", "True") {
        return Kstatus::InProgress;
    }
    if is("Stalled", "True") {
        return Kstatus::Failed;
    }
    if is("Ready", "False") || is("Ready", "Unknown") { Kstatus::InProgress } else { Kstatus::Current }
}

fn condition<'a, K: Kind>(object: &'a K, type_: &str) -> Option<&'a Condition> {
    object.conditions().iter().find(|condition| condition.type_ == type_)
}

async fn becomes_stalled<K: Kind>(client: &Client, object: &K, reason: &str) {
    let api = api::<K>(client);
    api.create(&PostParams::default(), object).await.unwrap();
    let name = object.meta().name.clone().unwrap();
    let seen =
        eventually(async || Some(api.get(&name).await.unwrap()).filter(|seen| !seen.conditions().is_empty()))
            .await;
    let stalled = condition(&seen, "Stalled").unwrap();
    assert_eq!((stalled.status.as_str(), stalled.reason.as_str()), ("True", reason));
    assert!(stalled.message.contains("`gridcast local run"), "{}", stalled.message);
    assert_eq!(condition(&seen, "Ready").unwrap().status, "False");
    assert_eq!(seen.observed_generation(), Some(1));
    assert_eq!(kstatus(&seen), Kstatus::Failed);
}

#[tokio::test(start_paused = true)]
async fn every_kind_says_what_it_cannot_do_and_is_quiet_afterwards() {
    let fake = FakeApi::default();
    let client = fake.client();
    start(&fake);
    let (cluster, broadcast, map) = objects();
    becomes_stalled(&client, &cluster, "ProvisioningUnsupported").await;
    becomes_stalled(&client, &broadcast, "StagingUnsupported").await;
    becomes_stalled(&client, &map, "MeasuringUnsupported").await;

    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = fake.requests();
    assert_eq!(before.iter().filter(|request| request.starts_with("PATCH")).count(), 3, "{before:?}");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(fake.requests(), before, "a settled object writes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_change_moves_the_observed_generation_and_no_transition_time() {
    let fake = FakeApi::default();
    let client = fake.client();
    start(&fake);
    let (cluster, ..) = objects();
    becomes_stalled(&client, &cluster, "ProvisioningUnsupported").await;
    let clusters = api::<VirtualCluster>(&client);
    let first = condition(&clusters.get("ring").await.unwrap(), "Stalled").unwrap().clone();

    tokio::time::sleep(Duration::from_secs(90)).await;
    let patch = Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 60}}));
    clusters.patch("ring", &PatchParams::default(), &patch).await.unwrap();
    let seen = eventually(async || {
        Some(clusters.get("ring").await.unwrap()).filter(|seen| seen.observed_generation() == Some(2))
    })
    .await;
    let second = condition(&seen, "Stalled").unwrap();
    assert_eq!(second.observed_generation, Some(2));
    assert_eq!(second.last_transition_time, first.last_transition_time);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_cluster_is_as_asked() {
    let fake = FakeApi::default();
    let client = fake.client();
    start(&fake);
    let (cluster, ..) = objects();
    becomes_stalled(&client, &cluster, "ProvisioningUnsupported").await;
    let clusters = api::<VirtualCluster>(&client);
    let patch = Patch::Merge(json!({"spec": {"suspend": true}}));
    clusters.patch("ring", &PatchParams::default(), &patch).await.unwrap();
    let seen = eventually(async || {
        Some(clusters.get("ring").await.unwrap()).filter(|seen| condition(seen, "Suspended").is_some())
    })
    .await;
    assert_eq!(seen.conditions().len(), 1, "{:?}", seen.conditions());
    assert_eq!(kstatus(&seen), Kstatus::Current);
}

#[tokio::test(start_paused = true)]
async fn deletion_is_harmless_and_the_next_of_the_name_is_another() {
    let fake = FakeApi::default();
    let client = fake.client();
    start(&fake);
    let (cluster, ..) = objects();
    let clusters = api::<VirtualCluster>(&client);
    becomes_stalled(&client, &cluster, "ProvisioningUnsupported").await;
    clusters.delete("ring", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(clusters.get_opt("ring").await.unwrap().is_none(), "nothing holds it and nothing brings it back");

    // Gone before the operator's own write arrives.
    clusters.create(&PostParams::default(), &cluster).await.unwrap();
    clusters.delete("ring", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(clusters.get_opt("ring").await.unwrap().is_none());

    becomes_stalled(&client, &cluster, "ProvisioningUnsupported").await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_tried_again() {
    let fake = FakeApi::default();
    start(&fake);
    let (cluster, ..) = objects();
    fake.refuse_writes(StatusCode::CONFLICT, 3);
    fake.put(&cluster);
    let clusters = api::<VirtualCluster>(&fake.client());
    eventually(async || {
        Some(clusters.get("ring").await.unwrap()).filter(|seen| !seen.conditions().is_empty())
    })
    .await;
    assert_eq!(fake.requests().len(), 4, "{:?}", fake.requests());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_does_not_hold_up_the_others() {
    let fake = FakeApi::default();
    start(&fake);
    let (cluster, ..) = objects();
    fake.put_value(
        "gridcast.io/v1alpha1/virtualclusters",
        json!({
            "apiVersion": "gridcast.io/v1alpha1", "kind": "VirtualCluster",
            "metadata": {"name": "future", "namespace": "default"}, "spec": {"groups": "many"}
        }),
    );
    fake.put(&cluster);
    let clusters = api::<VirtualCluster>(&fake.client());
    eventually(async || {
        Some(clusters.get("ring").await.unwrap()).filter(|seen| !seen.conditions().is_empty())
    })
    .await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(fake.requests().len(), 1, "{:?}", fake.requests());
}

/// The role is exactly what the operator uses: no less, no more.
#[tokio::test(start_paused = true)]
async fn the_role_is_least_privilege() {
    let role: ClusterRole = serde_saphyr::from_str(include_str!("../../role.yaml")).unwrap();
    let rules = role.rules.unwrap();
    let mut granted = BTreeSet::new();
    for rule in &rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                granted.extend(rule.verbs.iter().map(|verb| format!("{group}/{resource} {verb}")));
            }
        }
    }
    let fake = FakeApi::default();
    fake.enforce(rules);
    start(&fake);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (mut cluster, broadcast, map) = objects();
    fake.put(&cluster);
    fake.put(&broadcast);
    fake.put(&map);
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.spec.suspend = true;
    fake.put(&cluster);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fake.used().into_iter().collect::<BTreeSet<_>>(), granted);
    assert_eq!(fake.requests().len(), 4, "{:?}", fake.requests());
}
