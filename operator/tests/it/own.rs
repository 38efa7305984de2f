//! What is made for a cluster is only ever its own, whoever has taken the name.

use std::time::Duration;

use axum::http::StatusCode;
use gridcast_crds::{Broadcast, NetworkMap, VirtualCluster};
use gridcast_operator::{
    apply::{delete_own, own, publish_status},
    context::Context,
    failure::Error,
    kind::Owner,
};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Service},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::{
    controller::{cluster, clusters, condition, context, eventually, start},
    fakeapi::FakeApi,
};

fn owner(uid: &str) -> Owner {
    Owner { kind: "VirtualCluster".into(), namespace: "default".into(), name: "ring".into(), uid: uid.into() }
}

/// One that belongs to the cluster with this UID, and says `value`.
fn object<K: gridcast_operator::apply::Object>(uid: &str, value: &str, spec: &Value) -> K {
    let owner = json!({
        "apiVersion": "gridcast.io/v1alpha1", "kind": "VirtualCluster", "name": "ring", "uid": uid, "controller": true,
    });
    let mut object = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        "metadata": {
            "name": "ring", "namespace": "default", "annotations": {"value": value}, "ownerReferences": [owner],
        },
    });
    object.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

fn collection<K: gridcast_operator::apply::Object>() -> String {
    format!("{}/{}/{}", K::group(&()), K::version(&()), K::plural(&()))
}

async fn is_taken<K: gridcast_operator::apply::Object>(context: &Context, asked: &K, known: Option<String>) {
    let error = own(context, asked, &owner("ours"), known).await.unwrap_err();
    let Error::NameTaken { what, name, owner } = &error else { panic!("{error:?}") };
    assert_eq!((what.as_str(), name.as_str()), (K::kind(&()).as_ref(), "ring"));
    assert_eq!(owner, "VirtualCluster default/ring");
    assert!(error.to_string().contains("delete or rename it"), "{error}");
}

/// Whatever a user has under the name stays as it is, byte by byte, and what comes after it is ours.
async fn one_kind<K: gridcast_operator::apply::Object>(spec: Value) {
    let fake = FakeApi::default();
    let context = context(&fake, None);
    let writes = |before: usize| -> Vec<String> {
        let words = |request: &String| request.split(' ').next().unwrap_or_default().to_owned();
        fake.requests()[before..].iter().map(words).collect()
    };
    let mut foreign = object::<K>("theirs", "theirs", &spec);
    for owners in [foreign.meta().owner_references.clone(), None] {
        foreign.meta_mut().owner_references = owners;
        fake.put(&foreign);
        let before = fake.objects(&collection::<K>());
        let first = object::<K>("ours", "1", &spec);
        is_taken(&context, &first, None).await;
        // One of ours was there when it was last looked at.
        is_taken(&context, &first, Some("ours-of-before".into())).await;
        delete_own::<K>(&context, "default", "ring", &owner("ours"), None).await.unwrap();
        delete_own::<K>(&context, "default", "ring", &owner("ours"), Some("ours-of-before".into()))
            .await
            .unwrap();
        assert_eq!(fake.objects(&collection::<K>()), before);
        fake.ask_to_go(&collection::<K>(), "default", "ring");
    }

    let value = || fake.objects(&collection::<K>())[0]["metadata"]["annotations"]["value"].clone();
    let before = fake.requests().len();
    let made = own(&context, &object::<K>("ours", "1", &spec), &owner("ours"), None).await.unwrap();
    assert_eq!((value(), writes(before)), (json!("1"), vec!["POST".to_owned()]), "one write at first");
    let before = fake.requests().len();
    own(&context, &object::<K>("ours", "2", &spec), &owner("ours"), made.uid()).await.unwrap();
    assert_eq!(
        (value(), writes(before)),
        (json!("2"), vec!["PATCH".to_owned()]),
        "and one for what is known"
    );
    // Another operator knows nothing.
    let again = own(&context, &object::<K>("ours", "3", &spec), &owner("ours"), None).await.unwrap();
    assert_eq!((value(), again.uid()), (json!("3"), made.uid()));
    // Somebody removed it.
    fake.ask_to_go(&collection::<K>(), "default", "ring");
    let remade = own(&context, &object::<K>("ours", "4", &spec), &owner("ours"), made.uid()).await.unwrap();
    assert!(value() == json!("4") && remade.uid() != made.uid());

    let before = fake.requests().len();
    delete_own::<K>(&context, "default", "ring", &owner("ours"), remade.uid()).await.unwrap();
    assert_eq!(writes(before), ["DELETE"]);
    own(&context, &object::<K>("ours", "5", &spec), &owner("ours"), None).await.unwrap();
    delete_own::<K>(&context, "default", "ring", &owner("ours"), None).await.unwrap();
    assert!(fake.objects(&collection::<K>()).is_empty());
    delete_own::<K>(&context, "default", "ring", &owner("ours"), None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_object_of_any_kind_is_taken_over() {
    one_kind::<Service>(json!({})).await;
    one_kind::<ConfigMap>(json!({"data": {"machinefile": "mine"}})).await;
    one_kind::<NetworkPolicy>(json!({})).await;
    one_kind::<PodDisruptionBudget>(json!({})).await;
    let to = json!({"virtualCluster": {"name": "ring"}});
    let source = json!({"http": {"url": "https://example.org/a"}});
    one_kind::<Broadcast>(json!({"spec": {"source": source, "to": to}})).await;
    one_kind::<NetworkMap>(json!({"spec": {"of": to}})).await;
}

/// A quota that an object of ours has used up itself refuses its name before it is seen that it is there.
#[tokio::test(start_paused = true)]
async fn a_quota_that_is_used_up_does_not_hide_what_is_there() {
    let fake = FakeApi::default();
    let context = context(&fake, None);
    let made =
        own(&context, &object::<Service>("ours", "1", &json!({})), &owner("ours"), None).await.unwrap();
    fake.refuse_writes(StatusCode::FORBIDDEN, 1);
    let again =
        own(&context, &object::<Service>("ours", "2", &json!({})), &owner("ours"), None).await.unwrap();
    assert_eq!(again.uid(), made.uid());
    assert_eq!(fake.objects("/v1/services")[0]["metadata"]["annotations"]["value"], "2");
    fake.ask_to_go("/v1/services", "default", "ring");
    fake.refuse_writes(StatusCode::FORBIDDEN, 1);
    let none = own(&context, &object::<Service>("ours", "3", &json!({})), &owner("ours"), None).await;
    assert_eq!(none.unwrap_err().code(), Some(403), "what is not there is told by the refusal itself");
}

/// A cluster that is brought up, with a dataset.
fn asked() -> VirtualCluster {
    let mut cluster = cluster();
    cluster.spec.suspend = false;
    let data =
        json!([{"name": "ics", "mountPath": "/data", "source": {"http": {"url": "https://example.org/a"}}}]);
    cluster.spec.data = serde_json::from_value(data).unwrap();
    cluster
}

/// The kinds, and the name of each that a user has taken.
const NAMES: [(&str, &str); 4] = [
    ("/v1/services", "ring"),
    ("/v1/configmaps", "ring-machinefile"),
    ("networking.k8s.io/v1/networkpolicies", "ring"),
    ("gridcast.io/v1alpha1/broadcasts", "ring-ics"),
];

fn nodes(fake: &FakeApi) -> usize {
    let pods = fake.objects("/v1/pods");
    pods.iter().filter(|pod| pod["metadata"]["name"].as_str().unwrap().starts_with("ring-node-")).count()
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_is_told_and_the_cluster_goes_on_when_it_is_free() {
    for (taken, name) in NAMES {
        let fake = FakeApi::default();
        let client = fake.client();
        let mut foreign =
            json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"theirs": true}});
        if taken.ends_with("broadcasts") {
            foreign["spec"] = json!({"source": {"http": {"url": "https://example.org/b"}}, "to": {"nodeSelector": {"a": "b"}}});
        }
        fake.put_value(taken, foreign);
        let before = fake.objects(taken)[0]["spec"].clone();
        fake.put(&asked());
        start(&fake);
        let told = eventually(async || {
            let seen = clusters(&client).get("ring").await.unwrap();
            condition(&seen, "Ready").filter(|ready| ready.reason == "NameTaken").cloned()
        })
        .await;
        assert_eq!(told.status, "False");
        assert!(
            told.message.contains(&format!("{name:?} exists and does not belong to")),
            "{}",
            told.message
        );
        tokio::time::sleep(Duration::from_mins(1)).await;
        let now = fake.objects(taken).into_iter().find(|object| object["metadata"]["name"] == name);
        assert_eq!(now.unwrap()["spec"], before, "{taken}");
        // The rest is made all the same; but no node that would be given somebody else's data.
        assert_eq!(nodes(&fake), if taken.ends_with("broadcasts") { 0 } else { 4 });

        fake.release(taken, "default", name);
        fake.ask_to_go(taken, "default", name);
        eventually(async || {
            let ours = fake.objects(taken).into_iter().find(|object| object["metadata"]["name"] == name);
            let owner = ours?["metadata"]["ownerReferences"][0]["uid"].as_str()?.to_owned();
            let seen = clusters(&client).get("ring").await.unwrap();
            let free = condition(&seen, "Ready").is_some_and(|ready| ready.reason != "NameTaken");
            (free && seen.uid() == Some(owner)).then_some(())
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_knows_nothing_goes_on_with_what_is_the_clusters() {
    let fake = FakeApi::default();
    let client = fake.client();
    fake.put(&asked());
    let first = start(&fake);
    eventually(async || (nodes(&fake) == 4).then_some(())).await;
    let uids = || -> Vec<Value> {
        let of = |(kind, name): &(&str, &str)| {
            let found = fake.objects(kind).into_iter().find(|object| object["metadata"]["name"] == *name);
            found.unwrap()["metadata"]["uid"].clone()
        };
        NAMES.iter().map(of).collect()
    };
    let made = uids();
    first.clusters.forget(&clusters(&client).get("ring").await.unwrap().uid().unwrap());
    let requests = fake.requests().len();
    let patch = kube::api::Patch::Merge(json!({"spec": {"activeDeadlineSeconds": 86_400}}));
    clusters(&client).patch("ring", &kube::api::PatchParams::default(), &patch).await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(uids(), made, "the same objects");
    let seen = clusters(&client).get("ring").await.unwrap();
    assert!(condition(&seen, "Ready").is_some_and(|ready| ready.reason != "NameTaken"));
    let applied =
        fake.requests()[requests..].iter().filter(|request| request.ends_with("/services/ring")).count();
    assert!(applied >= 2, "asked whose it is, and applied");
}

/// `kubectl replace --force` while the operator is about to write.
#[tokio::test(start_paused = true)]
async fn an_object_that_was_made_again_has_no_state_of_its_predecessor() {
    let fake = FakeApi::default();
    let (client, context) = (fake.client(), context(&fake, None));
    fake.put(&cluster());
    let old = clusters(&client).get("ring").await.unwrap();
    fake.ask_to_go("gridcast.io/v1alpha1/virtualclusters", "default", "ring");
    fake.put(&cluster());
    let status = gridcast_crds::VirtualClusterStatus { replicas: Some(4), ..Default::default() };
    let error = publish_status(&context, &old, &status).await.unwrap_err();
    assert_eq!(error.code(), Some(409));
    assert_eq!(clusters(&client).get("ring").await.unwrap().status, None);
}

#[tokio::test(start_paused = true)]
async fn somebody_elses_budget_stays_when_the_clusters_goes() {
    const BUDGETS: &str = "policy/v1/poddisruptionbudgets";
    for ours in [false, true] {
        let fake = FakeApi::default();
        let client = fake.client();
        let mut ran = cluster();
        ran.status = serde_json::from_value(json!({"conditions": [{
            "type": "Running", "status": "True", "reason": "Running", "message": "it runs",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }]}))
        .unwrap();
        fake.put(&ran);
        let uid = clusters(&client).get("ring").await.unwrap().uid().unwrap();
        let budget = object::<PodDisruptionBudget>(if ours { &uid } else { "theirs" }, "1", &json!({}));
        fake.put(&budget);
        start(&fake);
        eventually(async || {
            let seen = clusters(&client).get("ring").await.unwrap();
            condition(&seen, "Suspended").map(drop)
        })
        .await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(fake.objects(BUDGETS).len(), usize::from(!ours));
    }
}
