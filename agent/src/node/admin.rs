//! Is the agent alive, is it of use, and what has it done?
//!
//! `/healthz` answers while the process turns, `/readyz` once the agent has a certificate and serves, `/metrics` in the text
//! format of Prometheus. Metrics are read where they arise when somebody asks; no label takes values from outside.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::Registry as Metrics;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::datasets::{Census, Registry};
use super::pods::Pods;
use crate::broadcast::Counters;
use crate::service::Meters;

/// What is there only when the agent serves.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) counters: Arc<Counters>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) pods: Pods,
    /// Until when its certificate is valid.
    pub(crate) until: watch::Receiver<Instant>,
}

/// What is asked of this listener.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    registry: Arc<Registry>,
    serving: Arc<OnceLock<Serving>>,
}

impl Admin {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { registry, serving: Arc::default() }
    }

    /// From now on the agent is ready.
    pub(crate) fn serves(&self, serving: Serving) {
        // Said once.
        let _ = self.serving.set(serving);
    }

    /// Answers at `address` for as long as the runtime lives.
    pub(crate) async fn listen(&self, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        let routes = Router::new()
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self.clone());
        tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::error!(%error, "health and metrics are not served any more");
            }
        });
        Ok(())
    }

    fn seconds_left(&self) -> u64 {
        let until = self.serving.get().map(|serving| *serving.until.borrow());
        until.map_or(0, |until| until.saturating_duration_since(Instant::now()).as_secs())
    }

    async fn snapshot(&self) -> Snapshot {
        let registry = self.registry.clone();
        let census = tokio::task::spawn_blocking(move || registry.census()).await.unwrap_or_default();
        let mut snapshot =
            Snapshot { census, certificate_seconds: self.seconds_left(), ..Snapshot::default() };
        if let Some(Serving { counters, meters, pods, .. }) = self.serving.get() {
            snapshot.received_bytes = counters.bytes_received();
            snapshot.sent_bytes = counters.bytes_sent();
            snapshot.repaired_chunks = counters.chunks_repaired();
            snapshot.latency_probes = meters.latency_probes.load(Ordering::Relaxed);
            snapshot.bandwidth_probes = meters.bandwidth_probes.load(Ordering::Relaxed);
            snapshot.settings = meters.settings_applied.load(Ordering::Relaxed);
            snapshot.pods = pods.count().await as u64;
        }
        snapshot
    }
}

async fn ready(State(admin): State<Admin>) -> impl IntoResponse {
    if admin.seconds_left() > 0 {
        (StatusCode::OK, "ok\n")
    } else if admin.serving.get().is_some() {
        (StatusCode::SERVICE_UNAVAILABLE, "the certificate has expired: is the operator running?\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no certificate yet: is the operator running?\n")
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    let text = admin.snapshot().await.text();
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, content_type)], text)
}

/// All that is told.
#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    received_bytes: u64,
    sent_bytes: u64,
    repaired_chunks: u64,
    latency_probes: u64,
    bandwidth_probes: u64,
    settings: u64,
    pods: u64,
    certificate_seconds: u64,
    census: Census,
}

impl Snapshot {
    fn text(self) -> String {
        let Self {
            received_bytes,
            sent_bytes,
            repaired_chunks,
            latency_probes,
            bandwidth_probes,
            settings,
            pods,
            certificate_seconds,
            census: Census { verified, staging, waiting, failed, mounts },
        } = self;
        let mut metrics = Metrics::with_prefix("gridcast_agent");
        let mut counter = |name, help, value| metrics.register(name, help, ConstCounter::new(value));
        counter("received_bytes", "Payload of datasets that came from other nodes", received_bytes);
        counter("sent_bytes", "Payload of datasets that went to other nodes", sent_bytes);
        counter("repaired_chunks", "Chunks that arrived corrupted and were asked for again", repaired_chunks);
        counter("latency_probes", "Measurements of latency that were done", latency_probes);
        counter("bandwidth_probes", "Measurements of bandwidth that were done", bandwidth_probes);
        counter("settings_applied", "Kernel settings that were applied", settings);
        let mut gauge = |name, help, value| metrics.register(name, help, ConstGauge::new(value));
        gauge("pods", "Pods in whose network namespaces the agent works", pods);
        gauge("certificate_seconds", "How long the agent's certificate is still valid", certificate_seconds);
        gauge("mounts", "Volumes of pods that show a dataset", mounts);
        let datasets = Family::<[(&str, &str); 1], Gauge>::default();
        for (state, number) in
            [("verified", verified), ("staging", staging), ("waiting", waiting), ("failed", failed)]
        {
            datasets.get_or_create(&[("state", state)]).set(number.cast_signed());
        }
        metrics.register("datasets", "Datasets of this node by state", datasets);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &metrics);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_names_units_and_states() {
        let census = Census { verified: 2, staging: 1, mounts: 3, ..Census::default() };
        let text =
            Snapshot { received_bytes: 7, certificate_seconds: 86_400, census, ..Snapshot::default() }.text();
        for line in [
            "# TYPE gridcast_agent_received_bytes counter",
            "gridcast_agent_received_bytes_total 7",
            "gridcast_agent_certificate_seconds 86400",
            "gridcast_agent_datasets{state=\"verified\"} 2",
            "gridcast_agent_datasets{state=\"failed\"} 0",
            "gridcast_agent_mounts 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }
}
