//! What a user of the cluster sees of the operator's loop, whatever a kind does in it.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use gridcast_crds::{Resource, VirtualCluster, parse};
use gridcast_operator::{
    authority::{Authority, Root},
    context::{Context, Settings},
    kind::Watched as _,
    run,
    watch::watch,
};
use http::StatusCode;
use k8s_openapi::{api::rbac::v1::PolicyRule, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::Deserialize;
use serde_json::json;

use crate::{fakeapi::FakeApi, virtual_now};

const CLUSTER: &str = r"
apiVersion: gridcast.io/v1alpha1
kind: VirtualCluster
metadata: {name: ring, namespace: default}
spec:
  suspend: true
  groups:
  - name: node
    replicas: 4
    pod: {spec: {containers: [{name: node, image: mpi, resources: {limits: {cpu: 2}}}]}}
  network: {probe: {policy: Never}}
  run: {processes: 4, command: [ring]}
";

pub(crate) fn cluster() -> VirtualCluster {
    let document = parse(CLUSTER).unwrap().remove(0);
    let Resource::VirtualCluster(cluster) = document.resource else { panic!("a VirtualCluster") };
    *cluster
}

fn settings(watch_namespace: Option<&str>) -> Settings {
    Settings {
        namespace: "gridcast-system".into(),
        watch_namespace: watch_namespace.map(str::to_owned),
        agent_image: "agent".into(),
        image_pull_policy: None,
        image_pull_secrets: Vec::new(),
        assigned_users: false,
        agent_port: 7411,
        starter_port: 7412,
    }
}

pub(crate) fn context(fake: &FakeApi, watch_namespace: Option<&str>) -> Arc<Context> {
    let authority = Authority::new(Root::from_bytes([7; 32])).unwrap();
    Arc::new(Context::new(fake.client(), settings(watch_namespace), authority, virtual_now))
}

fn start_in(fake: &FakeApi, watch_namespace: Option<&str>) -> Arc<Context> {
    let context = context(fake, watch_namespace);
    let operator = context.clone();
    tokio::spawn(async move {
        let lead = async {
            run::synced(&operator).await;
            run::reconcile(operator.clone()).await;
        };
        tokio::join!(watch(operator.clone()), lead);
    });
    context
}

pub(crate) fn start(fake: &FakeApi) -> Arc<Context> {
    start_in(fake, None)
}

pub(crate) async fn eventually<T>(mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..2000 {
        if let Some(value) = probe().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not reached within 100 simulated seconds");
}

pub(crate) fn clusters(client: &Client) -> Api<VirtualCluster> {
    Api::namespaced(client.clone(), "default")
}

pub(crate) fn condition<'a>(object: &'a VirtualCluster, type_: &str) -> Option<&'a Condition> {
    object.conditions().iter().find(|condition| condition.type_ == type_)
}

/// Waits until the suspended cluster says so for `generation`.
async fn suspended(client: &Client, generation: i64) -> VirtualCluster {
    let clusters = clusters(client);
    eventually(async || {
        Some(clusters.get("ring").await.unwrap()).filter(|seen| {
            condition(seen, "Suspended").is_some_and(|condition| condition.status == "True")
                && seen.status().and_then(|status| status.observed_generation) == Some(generation)
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_suspended_cluster_is_as_asked_and_writes_nothing_once_settled() {
    let fake = FakeApi::default();
    let client = fake.client();
    start(&fake);
    clusters(&client).create(&PostParams::default(), &cluster()).await.unwrap();
    let seen = suspended(&client, 1).await;
    // kstatus reads `Ready=False` as in progress and waits for ever.
    assert!(condition(&seen, "Ready").is_none() && condition(&seen, "Reconciling").is_none());

    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = fake.requests();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(fake.requests(), before, "a settled object writes nothing");
}

#[tokio::test(start_paused = true)]
async fn a_change_moves_the_observed_generation_and_no_transition_time() {
    let fake = FakeApi::default();
    let client = fake.client();
    start(&fake);
    clusters(&client).create(&PostParams::default(), &cluster()).await.unwrap();
    let first = condition(&suspended(&client, 1).await, "Suspended").unwrap().clone();
    tokio::time::sleep(Duration::from_secs(90)).await;
    let patch = Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 86_400}}));
    clusters(&client).patch("ring", &PatchParams::default(), &patch).await.unwrap();
    let seen = suspended(&client, 2).await;
    let second = condition(&seen, "Suspended").unwrap();
    assert_eq!(second.observed_generation, Some(2));
    assert_eq!(second.last_transition_time, first.last_transition_time);
}

#[tokio::test(start_paused = true)]
async fn deletion_ends_and_the_next_of_the_name_is_another() {
    let fake = FakeApi::default();
    let client = fake.client();
    let context = start(&fake);
    let clusters = clusters(&client);
    for _ in 0..2 {
        clusters.create(&PostParams::default(), &cluster()).await.unwrap();
        suspended(&client, 1).await;
        clusters.delete("ring", &DeleteParams::default()).await.unwrap();
        eventually(async || clusters.get_opt("ring").await.unwrap().is_none().then_some(())).await;
    }
    // Gone before the operator's own write arrives.
    clusters.create(&PostParams::default(), &cluster()).await.unwrap();
    clusters.delete("ring", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(clusters.get_opt("ring").await.unwrap().is_none(), "nothing holds it and nothing brings it back");
    assert_eq!((context.stores.clusters.len(), context.operations.running()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_tried_again() {
    let fake = FakeApi::default();
    start(&fake);
    fake.refuse_writes(StatusCode::INTERNAL_SERVER_ERROR, 3);
    fake.put(&cluster());
    suspended(&fake.client(), 1).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_told_of_and_does_not_hold_up_the_others() {
    let fake = FakeApi::default();
    start(&fake);
    fake.put_value(
        "gridcast.io/v1alpha1/virtualclusters",
        json!({
            "apiVersion": "gridcast.io/v1alpha1", "kind": "VirtualCluster",
            "metadata": {"name": "future", "namespace": "default"}, "spec": {"groups": "many"}
        }),
    );
    fake.put(&cluster());
    suspended(&fake.client(), 1).await;
    let events = fake.objects("events.k8s.io/v1/events");
    let told = events.iter().find(|event| event["regarding"]["name"] == "future").unwrap();
    assert_eq!((&told["reason"], &told["type"]), (&json!("Unreadable"), &json!("Warning")));
    assert!(told["note"].as_str().unwrap().contains("gridcast-operator crds"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn one_namespace_is_watched_where_that_is_asked() {
    let fake = FakeApi::default();
    let context = start_in(&fake, Some("default"));
    let mut other = cluster();
    other.metadata.namespace = Some("other".into());
    fake.put(&other);
    fake.put(&cluster());
    suspended(&fake.client(), 1).await;
    assert_eq!(context.stores.clusters.all().len(), 1);
    assert!(fake.requests().iter().all(|request| !request.contains("/other/")), "{:?}", fake.requests());
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Roles {
    cluster_rules: Vec<PolicyRule>,
    namespace_rules: Vec<PolicyRule>,
}

fn roles() -> Roles {
    serde_saphyr::from_str(include_str!("../../role.yaml")).unwrap()
}

/// The API server's own objects are looked after by name, and nothing is granted by a wildcard.
#[test]
fn the_roles_name_what_they_grant() {
    let Roles { cluster_rules, namespace_rules } = roles();
    let mut seen = BTreeSet::new();
    for rule in cluster_rules.iter().chain(&namespace_rules) {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let text = format!("{group}/{resource} {verb} {:?}", rule.resource_names);
                    assert!(!text.contains('*'), "{text}");
                    assert!(seen.insert(text.clone()), "{text} is granted twice");
                }
            }
        }
    }
    assert!(
        cluster_rules.iter().all(|rule| {
            let secrets = rule.resources.iter().flatten().any(|resource| resource == "secrets");
            !secrets || rule.verbs.iter().all(|verb| verb == "create" || verb == "delete")
        }),
        "users' Secrets are never read"
    );
    assert!(
        namespace_rules.iter().all(|rule| rule.resource_names.is_some()),
        "its own namespace, by name only"
    );
}

/// Granted, and reached only with agents and starters that answer, or when time has passed; the scenarios on a real cluster
/// reach them.
const NOT_REACHED: [&str; 13] = [
    "/events list",
    "/pods get",
    "authentication.k8s.io/tokenreviews create",
    "events.k8s.io/events patch",
    "gridcast.io/broadcasts delete",
    "gridcast.io/networkmaps create",
    "gridcast.io/networkmaps delete",
    "gridcast.io/networkmaps patch",
    "gridcast.io/virtualclusters delete",
    "gridcast.io/virtualclusters patch",
    "policy/poddisruptionbudgets create",
    "policy/poddisruptionbudgets delete",
    "policy/poddisruptionbudgets patch",
];

#[tokio::test(start_paused = true)]
async fn nothing_is_tried_that_the_roles_do_not_grant() {
    let Roles { cluster_rules, namespace_rules } = roles();
    let mut granted = BTreeSet::new();
    for rule in &cluster_rules {
        for (group, resource) in rule.api_groups.iter().flatten().zip(std::iter::repeat(&rule.resources)) {
            for resource in resource.iter().flatten() {
                granted.extend(rule.verbs.iter().map(|verb| format!("{group}/{resource} {verb}")));
            }
        }
    }
    let fake = FakeApi::default();
    fake.enforce(cluster_rules, "gridcast-system", namespace_rules);
    let mut ring = None;
    for document in parse(include_str!("all.yaml")).unwrap() {
        match document.resource {
            Resource::VirtualCluster(object) => {
                fake.put(&*object);
                ring = Some(object);
            }
            Resource::Broadcast(object) => fake.put(&*object),
            Resource::NetworkMap(object) => fake.put(&*object),
            _ => panic!("one of the three kinds"),
        }
    }
    fake.put_value("/v1/nodes", json!({"metadata": {"name": "n1"}}));
    start(&fake);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(fake.objects("/v1/pods").len(), 3, "{:?}", fake.requests());
    // What was made is changed.
    let mut ring = ring.unwrap();
    ring.spec.active_deadline_seconds = Some(86_400);
    fake.put(&*ring);
    tokio::time::sleep(Duration::from_mins(1)).await;
    for (kind, name) in [("virtualclusters", "ring"), ("broadcasts", "weights"), ("networkmaps", "rack")] {
        fake.ask_to_go(&format!("gridcast.io/v1alpha1/{kind}"), "default", name);
    }
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(fake.refused(), Vec::<String>::new());
    let used: BTreeSet<String> = fake.used().into_iter().collect();
    let unused: Vec<&str> = granted.difference(&used).map(String::as_str).collect();
    assert_eq!(unused, NOT_REACHED);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_pods_are_made_side_by_side_and_hold_up_no_other_cluster() {
    let fake = FakeApi::default();
    start(&fake);
    let mut many = cluster();
    many.metadata.name = Some("many".into());
    many.spec.suspend = false;
    many.spec.replicas = Some(1000);
    fake.put(&many);
    let pods = |prefix: &str| {
        let pods = fake.objects("/v1/pods");
        pods.iter().filter(|pod| pod["metadata"]["name"].as_str().unwrap().starts_with(prefix)).count()
    };
    let begin = tokio::time::Instant::now();
    eventually(async || (pods("many-") > 0).then_some(())).await;
    let mut few = cluster();
    few.spec.suspend = false;
    let asked = tokio::time::Instant::now();
    fake.put(&few);
    eventually(async || (pods("ring-") == 4).then_some(())).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    eventually(async || (pods("many-") == 1000).then_some(())).await;
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    let creations = fake.requests().iter().filter(|request| request.ends_with("/pods")).count();
    assert_eq!(creations, 1004, "each is asked for once");
}
