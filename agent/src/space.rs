//! What does an agent measure and change in one network namespace?
//!
//! Its own, or that of a pod of its node: the same parts, each made when it is first needed. An agent that has been
//! restarted restores a pod's settings without opening a port there.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use gridcast_proto::v1 as wire;
use tokio::sync::OnceCell;
use tonic::Status;

use crate::facts;
use crate::namespace::Namespace;
use crate::probe::{
    BandwidthPlan, BandwidthResult, Expectation, LatencyPlan, LatencyResult, ProbeError, Prober, Reflector,
    Sink, SinkOrder, Turns,
};
use crate::tune::{Applied, Journal, ProcSys, Restored, TuneError, Tuner};

/// Where a [`Space`] is, and where it finds what it needs.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) namespace: Namespace,
    /// A writable /proc.
    pub(crate) proc: PathBuf,
    /// The /proc/PID/cgroup whose limits bound the memory there; none = the machine's memory alone.
    pub(crate) group: Option<PathBuf>,
    /// Where peers' probes are answered.
    pub(crate) probes: SocketAddr,
    /// Directory of the journal of settings.
    pub(crate) journal: PathBuf,
    /// Shared by all places of the agent.
    pub(crate) turns: Turns,
}

/// Probes and settings in one network namespace.
#[derive(Debug)]
pub(crate) struct Space {
    place: Place,
    prober: Prober,
    ends: OnceCell<Ends>,
    /// None when the agent is stopping.
    tuner: OnceCell<Arc<Mutex<Option<Tuner>>>>,
}

/// What answers the probes of peers.
#[derive(Debug)]
struct Ends {
    reflector: Reflector,
    sink: Sink,
}

impl Space {
    pub(crate) fn new(place: Place) -> Self {
        let prober = Prober::within(place.namespace.clone(), place.turns.clone());
        Self { place, prober, ends: OnceCell::new(), tuner: OnceCell::new() }
    }

    /// Answers peers from now on; returns where.
    pub(crate) async fn listen(&self) -> Result<SocketAddr, ProbeError> {
        Ok(self.ends().await?.reflector.address())
    }

    async fn ends(&self) -> Result<&Ends, ProbeError> {
        let make = || async {
            let Place { namespace, probes, .. } = self.place.clone();
            let sink = Sink::bind(&namespace, probes).await?;
            let reflector = Reflector::start(&namespace, probes).await?;
            Ok(Ends { reflector, sink })
        };
        self.ends.get_or_try_init(make).await
    }

    /// The port of probes, here and at every peer.
    pub(crate) fn probe_port(&self) -> u16 {
        self.place.probes.port()
    }

    /// What is to be known of it. Peers are answered from then on: whoever asks will measure.
    pub(crate) async fn describe(&self, name: &str) -> Result<wire::DescribeReply, Status> {
        self.listen().await?;
        let Place { namespace, proc, group, probes, .. } = self.place.clone();
        let name = name.to_owned();
        let describe = move || facts::describe(&proc, group.as_deref(), &name, probes.port());
        let described = namespace.run(describe).await;
        described
            .map_err(|error| Status::internal(format!("cannot look into the network namespace: {error}")))
    }

    pub(crate) async fn latency(&self, plan: LatencyPlan) -> Result<LatencyResult, ProbeError> {
        self.prober.latency(plan).await
    }

    pub(crate) async fn bandwidth<E: From<ProbeError>>(
        &self,
        plan: BandwidthPlan,
        announce: impl Future<Output = Result<Expectation, E>>,
    ) -> Result<BandwidthResult, E> {
        self.prober.bandwidth(plan, announce).await
    }

    /// Admits one bandwidth probe; returns its token and where to connect.
    pub(crate) async fn expect(&self, order: SinkOrder) -> Result<(Vec<u8>, u16), ProbeError> {
        let sink = &self.ends().await?.sink;
        Ok((sink.expect(order)?.to_vec(), sink.port()))
    }

    pub(crate) async fn apply(
        &self,
        owner: String,
        settings: Vec<(String, String)>,
        dry_run: bool,
    ) -> Result<Vec<Applied>, Status> {
        self.tune(move |tuner| tuner.apply(&owner, &settings, dry_run)).await
    }

    pub(crate) async fn restore(&self, owner: String) -> Result<Vec<Restored>, Status> {
        self.tune(move |tuner| tuner.restore(&owner)).await
    }

    /// Settings that are applied here now.
    pub(crate) async fn held(&self) -> Result<usize, Status> {
        self.tune(|tuner| Ok(tuner.entries().len())).await
    }

    /// Changes no setting any more. A journal that holds nothing is removed.
    pub(crate) async fn close(&self) -> Result<(), Status> {
        let tuner = self.tuner.get_or_init(async || Arc::default()).await.clone();
        let journal = self.place.journal.clone();
        let close = move || {
            // Waits for what is being done.
            drop(tuner.lock().unwrap_or_else(PoisonError::into_inner).take());
            Journal::remove_if_empty(&journal)
        };
        let closed = tokio::task::spawn_blocking(close).await.map_err(|error| interrupted(&error.into()))?;
        Ok(closed.map_err(TuneError::from)?)
    }

    /// Runs `work` on the tuner, off the runtime's workers: it syncs files.
    async fn tune<T, W>(&self, work: W) -> Result<T, Status>
    where
        T: Send + 'static,
        W: FnOnce(&mut Tuner) -> Result<T, TuneError> + Send + 'static,
    {
        let tuner = Arc::clone(self.tuner.get_or_try_init(|| self.open_tuner()).await?);
        // Whatever a panic left half done is in the journal.
        let work = move || tuner.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(work);
        let done = self.place.namespace.run(work).await.map_err(|error| interrupted(&error))?;
        Ok(done.ok_or_else(|| Status::unavailable("the agent is stopping"))??)
    }

    async fn open_tuner(&self) -> Result<Arc<Mutex<Option<Tuner>>>, Status> {
        let Place { namespace, proc, journal, .. } = self.place.clone();
        let open = move || Tuner::with_kernel(ProcSys::at(proc), &journal);
        let tuner = namespace.run(open).await.map_err(|error| interrupted(&error))??;
        Ok(Arc::new(Mutex::new(Some(tuner))))
    }
}

fn interrupted(error: &std::io::Error) -> Status {
    Status::internal(format!("settings could not be reached: {error}"))
}
