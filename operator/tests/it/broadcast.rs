//! A Broadcast from its creation to its end, as the API server sees it. Nodes' agents are pods that say they are ready;
//! nobody answers at their address.

use std::{sync::Arc, time::Duration};

use gridcast_operator::{
    authority::{Authority, Root},
    context::{Context, Settings},
    run,
    watch::watch,
};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{fakeapi::FakeApi, virtual_now};

const BROADCASTS: &str = "gridcast.io/v1alpha1/broadcasts";
const PODS: &str = "/v1/pods";
const NODES: &str = "/v1/nodes";
const SECRETS: &str = "/v1/secrets";
const NETWORK_POLICIES: &str = "networking.k8s.io/v1/networkpolicies";

fn start(fake: &FakeApi) {
    let settings = Settings {
        namespace: "gridcast-system".into(),
        watch_namespace: None,
        agent_image: "agent:1".into(),
        image_pull_policy: None,
        image_pull_secrets: Vec::new(),
        // Nobody listens here.
        assigned_users: false,
        agent_port: 1,
        starter_port: 2,
    };
    let authority = Authority::new(Root::from_bytes([7; 32])).unwrap();
    let context = Arc::new(Context::new(fake.client(), settings, authority, virtual_now));
    tokio::spawn(async move {
        let lead = async {
            run::synced(&context).await;
            run::reconcile(context.clone()).await;
        };
        tokio::join!(watch(context.clone()), lead);
    });
}

/// A node whose agent is ready, as it says.
fn node(fake: &FakeApi, name: &str) {
    fake.put_value(
        NODES,
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name}}),
    );
    fake.put_value(
        PODS,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("gridcast-agent-{name}"), "namespace": "gridcast-system",
                "uid": format!("agent-{name}"), "labels": {"app.kubernetes.io/name": "gridcast-agent"}},
            "spec": {"nodeName": name, "containers": []},
            "status": {"hostIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
        }),
    );
}

fn broadcast(fake: &FakeApi, source: &Value, nodes: &[&str]) {
    fake.put_value(
        BROADCASTS,
        json!({
            "apiVersion": "gridcast.io/v1alpha1", "kind": "Broadcast",
            "metadata": {"name": "ics", "namespace": "default"},
            "spec": {"source": source, "to": {"nodes": nodes}},
        }),
    );
}

async fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    for _ in 0..2000 {
        if let Some(value) = probe() {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: not reached within 100 simulated seconds");
}

/// Waits until `Ready` has this reason; its message.
async fn reason(fake: &FakeApi, reason: &str) -> String {
    eventually(reason, || {
        let object = fake.objects(BROADCASTS).pop()?;
        let ready = object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?.clone();
        (ready["reason"] == reason).then(|| ready["message"].as_str().unwrap_or_default().to_owned())
    })
    .await
}

fn source_pods(fake: &FakeApi) -> Vec<String> {
    let pods = fake.objects(PODS).into_iter().filter(|pod| pod["metadata"]["namespace"] == "default");
    pods.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_source_pod_comes_with_its_keys_is_followed_by_another_and_goes_with_both() {
    let fake = FakeApi::default();
    start(&fake);
    node(&fake, "n1");
    broadcast(&fake, &json!({"configMap": {"name": "ics"}}), &["n1"]);
    eventually("a source pod", || (source_pods(&fake) == ["ics-0-source"]).then_some(())).await;
    let secret = fake.objects(SECRETS).into_iter().find(|s| s["metadata"]["namespace"] == "default").unwrap();
    let object = fake.objects(BROADCASTS).pop().unwrap();
    let uid = &object["metadata"]["uid"];
    assert!(secret["metadata"]["name"].as_str().unwrap().starts_with("ics-source-"));
    assert_eq!(&secret["metadata"]["ownerReferences"][0]["uid"], uid);
    assert_eq!(object["metadata"]["finalizers"], json!(["gridcast.io/release"]));
    let policy = fake.objects(NETWORK_POLICIES).pop().expect("a pod that cannot be reached is of no use");
    assert_eq!(&policy["metadata"]["ownerReferences"][0]["uid"], uid);

    let pod = fake.objects(PODS).into_iter().find(|pod| pod["metadata"]["namespace"] == "default").unwrap();
    assert_eq!(&pod["metadata"]["labels"]["gridcast.io/broadcast-uid"], uid);
    let ended = json!({"status": {"phase": "Failed", "containerStatuses": [{"name": "agent", "image": "",
        "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 1, "message": "no keys",
            "finishedAt": "1970-01-01T00:00:00Z"}}}]}});
    let pods: Api<Pod> = Api::namespaced(fake.client(), "default");
    pods.patch_status("ics-0-source", &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    // Nobody answers on the node, either; what is wrong with the source comes first.
    assert_eq!(
        reason(&fake, "SourcePodFailed").await,
        "source pod ics-0-source: no keys; 0 of 1 nodes have it"
    );
    eventually("the next pod", || (source_pods(&fake) == ["ics-1-source"]).then_some(())).await;

    fake.ask_to_go(BROADCASTS, "default", "ics");
    eventually("no source pod", || source_pods(&fake).is_empty().then_some(())).await;
    let left =
        fake.objects(SECRETS).into_iter().filter(|secret| secret["metadata"]["namespace"] == "default");
    assert_eq!(left.count(), 0);
    // The node may have a copy, and does not answer.
    assert!(reason(&fake, "AgentLost").await.starts_with("n1: "));
    assert_eq!(fake.objects(BROADCASTS).len(), 1);
    fake.ask_to_go(NODES, "", "n1");
    eventually("an end", || fake.objects(BROADCASTS).is_empty().then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_refused_is_told_of_and_tried_again() {
    let fake = FakeApi::default();
    start(&fake);
    node(&fake, "n1");
    broadcast(&fake, &json!({"configMap": {"name": "ics"}}), &["n1"]);
    let secret =
        || fake.objects(SECRETS).into_iter().any(|secret| secret["metadata"]["namespace"] == "default");
    eventually("the keys", || secret().then_some(())).await;
    fake.refuse_writes(StatusCode::FORBIDDEN, 1);
    assert!(reason(&fake, "SourcePodRefused").await.starts_with("source pod ics-0-source: "));
    eventually("a source pod", || (source_pods(&fake) == ["ics-0-source"]).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_by_its_field_needs_no_finalizer_and_no_further_write() {
    let fake = FakeApi::default();
    start(&fake);
    node(&fake, "n1");
    broadcast(&fake, &json!({"s3": {"bucket": "ics"}}), &["n1"]);
    assert!(reason(&fake, "Unsupported").await.contains("`spec.source.s3`"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = fake.requests();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(fake.requests(), before);
    fake.ask_to_go(BROADCASTS, "default", "ics");
    assert!(fake.objects(BROADCASTS).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_without_an_agent_is_waited_for_without_writes() {
    let fake = FakeApi::default();
    start(&fake);
    node(&fake, "n1");
    broadcast(&fake, &json!({"node": {"name": "n1", "path": "/srv"}}), &["n2"]);
    let message = reason(&fake, "NoAgent").await;
    assert_eq!(message, "there is no Kubernetes node n2; 0 of 1 nodes have it");
    tokio::time::sleep(Duration::from_secs(15)).await;
    let before = fake.requests();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(fake.requests(), before);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_the_daemon_set_has_left_does_not_hold_the_end_for_ever() {
    let fake = FakeApi::default();
    start(&fake);
    node(&fake, "n1");
    broadcast(&fake, &json!({"node": {"name": "n1", "path": "/srv"}}), &["n1"]);
    reason(&fake, "AgentLost").await;
    // Its labels have changed: the DaemonSet takes the agent away, and the node stays.
    fake.ask_to_go(PODS, "gridcast-system", "gridcast-agent-n1");
    fake.ask_to_go(BROADCASTS, "default", "ics");
    let message = reason(&fake, "NoAgent").await;
    assert!(message.contains("without an agent for 120 s it stays there"), "{message}");
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(fake.objects(BROADCASTS).len(), 1, "it may come back");
    eventually("an end", || fake.objects(BROADCASTS).is_empty().then_some(())).await;
    let told = fake.objects("events.k8s.io/v1/events").into_iter().find(|e| e["reason"] == "DataLeftBehind");
    let note = told.expect("an event")["note"].as_str().unwrap().to_owned();
    assert!(note.contains("on n1") && note.contains("data/default/ics"), "{note}");
}
