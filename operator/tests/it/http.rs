//! Health and metrics.

use std::time::Duration;

use axum::body::Body;
use gridcast_operator::http::routes;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;

use crate::{
    controller::{cluster, context, start},
    fakeapi::FakeApi,
};

async fn get(routes: axum::Router, path: &str) -> (StatusCode, String) {
    let answer = routes.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let (parts, body) = answer.into_parts();
    (parts.status, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_once_every_watch_has_delivered() {
    let fake = FakeApi::default();
    let silent = routes(context(&fake, None));
    assert_eq!(get(silent.clone(), "/healthz").await.0, StatusCode::OK);
    let (status, text) = get(silent, "/readyz").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(text.contains("virtualclusters") && text.contains("nodes"), "{text}");

    let context = start(&fake);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(get(routes(context), "/readyz").await.0, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn figures_name_kinds_and_no_objects() {
    let fake = FakeApi::default();
    let context = start(&fake);
    fake.put(&cluster());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (status, text) = get(routes(context), "/metrics").await;
    assert_eq!(status, StatusCode::OK);
    for figure in [
        r#"gridcast_clusters{state="suspended"} 1"#,
        r#"gridcast_api_writes_total{kind="VirtualCluster",verb="PatchStatus",result="ok"}"#,
        r#"gridcast_reconcile_duration_seconds_count{kind="VirtualCluster",result="ok"}"#,
        r#"gridcast_reconcile_queue{kind="Broadcast"} 0"#,
        "gridcast_operations 0",
        "gridcast_leader 0",
    ] {
        assert!(text.contains(figure), "{figure} is missing:\n{text}");
    }
    assert!(!text.contains("ring") && text.ends_with("# EOF\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_stage_of_a_cluster_is_counted_once_with_its_time_since_creation() {
    let fake = FakeApi::default();
    let context = start(&fake);
    let mut ring = cluster();
    ring.spec.suspend = false;
    fake.put(&ring);
    tokio::time::sleep(Duration::from_secs(2)).await;
    for mut pod in fake.objects("/v1/pods") {
        pod["spec"]["nodeName"] = "n1".into();
        fake.put_value("/v1/pods", pod);
    }
    tokio::time::sleep(Duration::from_mins(1)).await;
    let (_, text) = get(routes(context), "/metrics").await;
    assert!(text.contains(r#"gridcast_cluster_stage_seconds_count{stage="Scheduled"} 1"#), "{text}");
    assert!(!text.contains(r#"stage="Ready""#), "{text}");
}
