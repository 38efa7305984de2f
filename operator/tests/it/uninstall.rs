//! What `gridcast-operator uninstall` leaves.

use std::time::Duration;

use gridcast_operator::uninstall::uninstall;
use serde_json::json;

use crate::fakeapi::FakeApi;

fn put(fake: &FakeApi, plural: &str, namespace: &str, name: &str, finalizers: &[&str]) {
    fake.put_value(
        &format!("gridcast.io/v1alpha1/{plural}"),
        json!({"metadata": {"name": name, "namespace": namespace, "finalizers": finalizers}, "spec": {}}),
    );
}

#[tokio::test(start_paused = true)]
async fn all_objects_of_all_namespaces_go() {
    let fake = FakeApi::default();
    put(&fake, "virtualclusters", "a", "ring", &["gridcast.io/release"]);
    put(&fake, "broadcasts", "b", "weights", &[]);
    put(&fake, "networkmaps", "c", "rack", &[]);
    let work = tokio::spawn(uninstall(fake.client(), None, Duration::from_mins(1)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!work.is_finished(), "the operator has not yet released the cluster");
    let deletes = fake.requests().iter().filter(|request| request.starts_with("DELETE")).count();
    assert_eq!(deletes, 3, "one each: {:?}", fake.requests());
    fake.release("gridcast.io/v1alpha1/virtualclusters", "a", "ring");
    work.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_another_operator_watches_is_not_touched() {
    let fake = FakeApi::default();
    for namespace in ["ours", "theirs"] {
        put(&fake, "virtualclusters", namespace, "ring", &["gridcast.io/release"]);
        put(&fake, "broadcasts", namespace, "weights", &[]);
        put(&fake, "networkmaps", namespace, "rack", &[]);
    }
    let work = tokio::spawn(uninstall(fake.client(), Some("ours"), Duration::from_mins(1)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let deletes = fake.requests().into_iter().filter(|request| request.starts_with("DELETE"));
    let deletes: Vec<String> = deletes.collect();
    assert!(deletes.len() == 3 && deletes.iter().all(|request| request.contains("/ours/")), "{deletes:?}");
    fake.release("gridcast.io/v1alpha1/virtualclusters", "ours", "ring");
    work.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_does_not_go_is_named() {
    let fake = FakeApi::default();
    put(&fake, "broadcasts", "b", "weights", &["gridcast.io/release"]);
    let error = uninstall(fake.client(), None, Duration::from_mins(1)).await.unwrap_err().to_string();
    assert!(
        error.contains("not gone after 60 s: Broadcast b/weights (held by gridcast.io/release)"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_where_there_was_nothing() {
    uninstall(FakeApi::default().client(), None, Duration::from_secs(1)).await.unwrap();
}
