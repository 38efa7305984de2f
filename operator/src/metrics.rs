//! What is counted, and under which name?
//!
//! No label holds the name of an object: a cluster has thousands, and a time series lives for ever.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

/// Seconds of a reconciliation: from one that writes nothing to one that makes a thousand pods.
const RECONCILE_BUCKETS: [f64; 9] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 5.0, 10.0, 30.0];
/// Seconds from the creation of a cluster: from a small one to one that waits for machines.
const STAGE_BUCKETS: [f64; 12] = [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0];

/// A write, as RBAC and the audit log name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Verb {
    /// POST.
    Create,
    /// PATCH of the object.
    Patch,
    /// PATCH of its status.
    PatchStatus,
    /// PUT.
    Update,
    /// DELETE.
    Delete,
}

impl Verb {
    /// As in "cannot create Pod".
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Patch => "apply",
            Self::PatchStatus => "write the status of",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A state that a cluster reaches once on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Stage {
    /// Every node has a place.
    Scheduled,
    /// Every starter answers.
    Ready,
    /// Every dataset is on every node.
    Staged,
    /// The network was measured.
    Measured,
    /// The TCP settings were in force.
    Tuned,
    /// The gate opened and `mpirun` was started.
    Launched,
    /// The first rank reported.
    FirstRank,
    /// It ended.
    Finished,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReconcileLabels {
    kind: String,
    result: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    kind: String,
    verb: Verb,
    result: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    result: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: String,
}

/// All figures. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    reconciles: Family<ReconcileLabels, Histogram, fn() -> Histogram>,
    writes: Family<WriteLabels, Counter>,
    stages: Family<StageLabels, Histogram, fn() -> Histogram>,
    queue: Family<KindLabels, Gauge>,
    clusters: Family<StateLabels, Gauge>,
    certificates: Family<ResultLabels, Counter>,
    operations: Gauge,
    leader: Gauge,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("gridcast");
        let reconciles = Family::new_with_constructor(reconcile_histogram as fn() -> Histogram);
        let stages = Family::new_with_constructor(stage_histogram as fn() -> Histogram);
        let (writes, queue, clusters, certificates) =
            (Family::default(), Family::default(), Family::default(), Family::default());
        let (operations, leader) = (Gauge::default(), Gauge::default());
        registry.register_with_unit(
            "reconcile_duration",
            "Time of one reconciliation, by how it ended",
            Unit::Seconds,
            reconciles.clone(),
        );
        registry.register(
            "api_writes",
            "Writes to the API server, by how they were answered",
            writes.clone(),
        );
        registry.register_with_unit(
            "cluster_stage",
            "Time from the creation of a VirtualCluster until it reached a stage",
            Unit::Seconds,
            stages.clone(),
        );
        registry.register("reconcile_queue", "Objects that are due and wait for their turn", queue.clone());
        registry.register("clusters", "VirtualClusters by state", clusters.clone());
        registry.register("certificates", "Requests of agents for a certificate", certificates.clone());
        registry.register(
            "operations",
            "Long steps that go on: measure, stage, gate, launch",
            operations.clone(),
        );
        registry.register("leader", "Whether this replica reconciles", leader.clone());
        let version = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "What runs", version);
        Self {
            registry: Arc::new(registry),
            reconciles,
            writes,
            stages,
            queue,
            clusters,
            certificates,
            operations,
            leader,
        }
    }

    /// Counts a reconciliation; `result` is `ok` or the reason of the error.
    pub fn reconciled(&self, kind: &str, result: &str, took: Duration) {
        let labels = ReconcileLabels { kind: kind.to_owned(), result: result.to_owned() };
        self.reconciles.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts a write and how it was answered.
    pub fn write(&self, verb: Verb, kind: &str, error: Option<&kube::Error>) {
        let result = match error {
            None => "ok".to_owned(),
            Some(kube::Error::Api(status)) => status.code.to_string(),
            Some(_) => "lost".to_owned(),
        };
        self.writes.get_or_create(&WriteLabels { kind: kind.to_owned(), verb, result }).inc();
    }

    /// Counts a cluster that reached `stage` so long after its creation. Call it once per cluster and stage.
    pub fn cluster_reached(&self, stage: Stage, after: Duration) {
        self.stages.get_or_create(&StageLabels { stage }).observe(after.as_secs_f64());
    }

    /// Counts an agent's request for a certificate; `result` is `issued` or why not.
    pub fn certificate(&self, result: &str) {
        self.certificates.get_or_create(&ResultLabels { result: result.to_owned() }).inc();
    }

    /// Whether this replica reconciles.
    pub fn set_leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Sets what is counted when it is asked for.
    pub(crate) fn set_snapshot(&self, snapshot: &Snapshot) {
        let Snapshot { queues, operations, clusters } = snapshot;
        for (kind, depth) in queues {
            self.queue.get_or_create(&KindLabels { kind: (*kind).to_owned() }).set(saturating(*depth));
        }
        for (state, count) in clusters {
            self.clusters.get_or_create(&StateLabels { state: (*state).to_owned() }).set(saturating(*count));
        }
        self.operations.set(saturating(*operations));
    }

    /// All of it as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        match text::encode(&mut out, &self.registry) {
            Ok(()) => out,
            Err(_) => String::new(),
        }
    }
}

/// What is counted when it is asked for.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) queues: Vec<(&'static str, usize)>,
    pub(crate) operations: usize,
    pub(crate) clusters: Vec<(&'static str, usize)>,
}

fn reconcile_histogram() -> Histogram {
    Histogram::new(RECONCILE_BUCKETS)
}

fn stage_histogram() -> Histogram {
    Histogram::new(STAGE_BUCKETS)
}

fn saturating(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
