//! Replicas that want to lead.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use gridcast_operator::{lease::Candidate, operations::Owner, run, watch::watch};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use tokio::time::Instant;

use crate::{fakeapi::FakeApi, virtual_now};

fn with_lease() -> FakeApi {
    let fake = FakeApi::default();
    let lease = json!({"metadata": {"name": "gridcast-operator", "namespace": "own"}});
    fake.put_value("coordination.k8s.io/v1/leases", lease);
    fake
}

fn replica(fake: &FakeApi, name: &str) -> (Candidate, Arc<AtomicBool>) {
    let cut = Arc::new(AtomicBool::new(false));
    let client = fake.client_behind(cut.clone());
    (Candidate::new(client, "own", name.to_owned(), virtual_now), cut)
}

async fn holder(fake: &FakeApi) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(fake.client(), "own");
    leases.get("gridcast-operator").await.unwrap().spec.unwrap_or_default().holder_identity
}

#[tokio::test(start_paused = true)]
async fn one_leads_while_it_renews_and_the_next_after_it_let_go() {
    let fake = with_lease();
    let ((mut a, _), (mut b, _)) = (replica(&fake, "a"), replica(&fake, "b"));
    a.win().await;
    let waiting = tokio::spawn(async move {
        b.win().await;
        b
    });
    let kept = tokio::time::timeout(Duration::from_mins(10), a.keep()).await;
    assert!(kept.is_err() && !waiting.is_finished(), "a leads for ten minutes: {kept:?}");
    assert_eq!(holder(&fake).await.as_deref(), Some("a"));

    a.release().await;
    let released = Instant::now();
    let b = waiting.await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(3), "{:?}", released.elapsed());
    assert_eq!(holder(&fake).await.as_deref(), Some("b"));

    // A replica that let go long ago does not take it from its successor.
    a.release().await;
    assert_eq!(holder(&fake).await.as_deref(), Some("b"));
    drop(b);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_gives_up_before_another_leads() {
    let fake = with_lease();
    let ((mut a, cut), (mut b, _)) = (replica(&fake, "a"), replica(&fake, "b"));
    a.win().await;
    let a = tokio::spawn(async move {
        let lost = a.keep().await;
        (lost.to_string(), Instant::now())
    });
    let b = tokio::spawn(async move {
        b.win().await;
        Instant::now()
    });
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(970)).await;
    }
    cut.store(true, Ordering::Relaxed);
    let at = Instant::now();
    let (lost, ended) = a.await.unwrap();
    let led = b.await.unwrap();
    assert!(lost.contains("could not renew it"), "{lost}");
    assert!(ended < led, "a ended {:?}, b led {:?} after the cut", ended - at, led - at);
    assert!(led - at < Duration::from_secs(20), "{:?}", led - at);
}

/// Tells who held the lease when it was dropped.
struct Ended(FakeApi, Arc<Mutex<Vec<String>>>);

impl Drop for Ended {
    fn drop(&mut self) {
        let lease = self.0.objects("coordination.k8s.io/v1/leases").pop().unwrap();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or("nobody").to_owned();
        self.1.lock().unwrap().push(holder);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_ends_before_another_may_lead() {
    for cut_off in [false, true] {
        let fake = FakeApi::default();
        let lease = json!({"metadata": {"name": "gridcast-operator", "namespace": "gridcast-system"}});
        fake.put_value("coordination.k8s.io/v1/leases", lease);
        let context = crate::controller::context(&fake, None);
        tokio::spawn(watch(context.clone()));
        let cut = Arc::new(AtomicBool::new(false));
        let client = fake.client_behind(cut.clone());
        let candidate = Candidate::new(client, "gridcast-system", "a".into(), virtual_now);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let leading = tokio::spawn(run::lead(context.clone(), Some(candidate), stopped));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (kind, uid) = ("Broadcast".into(), "1".to_owned());
        let owner = Owner { kind, uid, namespace: "default".into(), name: "ics".into() };
        let ended = Arc::new(Mutex::new(Vec::new()));
        let guard = Ended(fake.clone(), ended.clone());
        let begun = context.operations.begin(&owner, "stage", (), |_| async move {
            let _guard = guard;
            std::future::pending().await
        });
        assert!(begun);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!leading.is_finished() && ended.lock().unwrap().is_empty());

        if cut_off {
            cut.store(true, Ordering::Relaxed);
        } else {
            stop.send(()).unwrap();
        }
        let led = leading.await.unwrap();
        assert_eq!(led.is_err(), cut_off, "{led:?}");
        assert_eq!(*ended.lock().unwrap(), ["a"], "it ended while nobody else could lead");
        assert!(!context.operations.begin(&owner, "stage", (), |_| async { Ok(()) }));
    }
}

#[tokio::test(start_paused = true)]
async fn of_racers_one_wins() {
    let fake = with_lease();
    let winners: Vec<_> = (0..8)
        .map(|index| {
            let (mut candidate, _) = replica(&fake, &format!("r{index}"));
            tokio::spawn(async move { candidate.win().await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(winners.iter().filter(|winner| winner.is_finished()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_replica_leads_at_once_and_a_lease_that_is_gone_is_lost() {
    let fake = with_lease();
    let (mut first, _) = replica(&fake, "a");
    first.win().await;
    drop(first);
    let (mut again, _) = replica(&fake, "a");
    let begin = Instant::now();
    again.win().await;
    assert!(begin.elapsed() < Duration::from_secs(1));

    let leases: Api<Lease> = Api::namespaced(fake.client(), "own");
    leases.delete("gridcast-operator", &kube::api::DeleteParams::default()).await.unwrap();
    let lost = again.keep().await.to_string();
    assert!(lost.contains("it was deleted"), "{lost}");
}
