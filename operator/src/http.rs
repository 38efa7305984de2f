//! Is the operator alive, does it know the cluster, and what did it do?
//!
//! `/healthz` answers while the process turns, `/readyz` once every watch has delivered what there was (leading or not:
//! every replica issues certificates), `/metrics` speaks OpenMetrics.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use gridcast_crds::{VirtualCluster, conditions};

use crate::{context::Context, listen::Listener, metrics::Snapshot, verdict::is_true};

/// The states that `gridcast_clusters` tells apart, the first that applies.
const STATES: [(&str, &str); 6] = [
    (conditions::COMPLETE, "complete"),
    (conditions::FAILED, "failed"),
    (conditions::SUSPENDED, "suspended"),
    (conditions::RUNNING, "running"),
    (conditions::STALLED, "stalled"),
    (conditions::READY, "ready"),
];
/// Any other.
const RECONCILING: &str = "reconciling";

/// Serves until it is dropped.
pub async fn serve(listener: Listener, context: Arc<Context>) -> std::io::Result<()> {
    axum::serve(listener, routes(context)).await
}

/// What is served.
pub fn routes(context: Arc<Context>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(context)
}

async fn ready(State(context): State<Arc<Context>>) -> impl IntoResponse {
    match context.stores.unsynced().as_slice() {
        [] => (StatusCode::OK, "ok\n".to_owned()),
        missing => (StatusCode::SERVICE_UNAVAILABLE, format!("not yet seen: {}\n", missing.join(", "))),
    }
}

async fn metrics(State(context): State<Arc<Context>>) -> impl IntoResponse {
    context.metrics.set_snapshot(&snapshot(&context));
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], context.metrics.text())
}

fn snapshot(context: &Context) -> Snapshot {
    let queues = &context.queues;
    let mut clusters: Vec<(&'static str, usize)> = STATES.iter().map(|(_, state)| (*state, 0)).collect();
    clusters.push((RECONCILING, 0));
    for cluster in context.stores.clusters.all() {
        let state = state(&cluster);
        if let Some((_, count)) = clusters.iter_mut().find(|(known, _)| *known == state) {
            *count += 1;
        }
    }
    Snapshot {
        queues: vec![
            ("VirtualCluster", queues.clusters.depth()),
            ("Broadcast", queues.broadcasts.depth()),
            ("NetworkMap", queues.network_maps.depth()),
        ],
        operations: context.operations.running(),
        clusters,
    }
}

fn state(cluster: &VirtualCluster) -> &'static str {
    let conditions = cluster.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let found = STATES.iter().find(|(type_, _)| is_true(conditions, type_));
    found.map_or(RECONCILING, |(_, state)| state)
}
