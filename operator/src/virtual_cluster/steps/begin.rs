//! Begins what a plan asks for.

use std::{sync::Arc, time::Duration};

use gridcast_control::{AGENT_PORT, Remote, StepFailure, launch::Program};
use gridcast_core::mpi::HostSlots;
use gridcast_crds::{VirtualCluster, conditions, virtual_cluster::Run};
use gridcast_proto::v1 as wire;

use super::{collect, gate, launch, reach, tune};
use crate::{
    authority::ClusterAuthority,
    context::Context,
    kind::Owner,
    operations::Reporter,
    virtual_cluster::{
        Gate, HelperPod, Host, Launch, Released, Step, Tuned,
        members::keys_in_use,
        objects::machinefile::{launcher, machinefile},
    },
};

/// What a program has between SIGTERM and SIGKILL.
pub const LAUNCH_GRACE: Duration = Duration::from_secs(10);

/// Begins `step` for `cluster`, unless it was begun. Says whether it was begun now. [`Step::Create`] is no step of this
/// module: it makes objects.
pub fn begin(context: &Arc<Context>, cluster: &Arc<VirtualCluster>, step: Step) -> bool {
    let (owner, name) = (Owner::of(cluster.as_ref()), step.operation());
    let (operations, work) =
        (&context.operations, Work { context: context.clone(), cluster: cluster.clone() });
    match step {
        Step::Create { .. } => false,
        Step::Gate { hosts, .. } => {
            operations.begin(&owner, &name, Gate::default(), |reporter| work.gate(hosts, reporter))
        }
        Step::Tune { hosts, map, .. } => operations.begin(&owner, &name, Tuned::default(), |_| async move {
            let network = map.as_deref().and_then(tune::network);
            work.tune(hosts, network).await
        }),
        Step::Launch { id, hosts } => {
            operations.begin(&owner, &name, Launch::default(), |reporter| work.launch(id, hosts, reporter))
        }
        Step::Stop { id, first } => operations.begin(&owner, &name, (), |_| work.stop(id, first)),
        Step::Collect { hosts, pods, .. } => {
            operations.begin(&owner, &name, (), |_| work.collect(hosts, pods))
        }
        Step::Release { hosts, .. } => {
            operations.begin(&owner, &name, Released::default(), |_| work.release(hosts))
        }
    }
}

/// What every step has at hand.
struct Work {
    context: Arc<Context>,
    cluster: Arc<VirtualCluster>,
}

impl Work {
    async fn gate(self, hosts: Arc<[Host]>, reporter: Reporter<Gate>) -> Result<Gate, StepFailure> {
        let machinefile = machinefile(&self.cluster)
            .map_err(|error| StepFailure::new(error.reason(), format!("machinefile: {error}")))?;
        let launcher = match &self.cluster.spec.run {
            Some(run) => program(run)?.launcher(),
            None => "",
        };
        let named = |host: &Host| wire::Host { name: host.name.clone(), address: host.address.clone() };
        let order = gate::Order { hosts: hosts.iter().map(named).collect(), machinefile, launcher };
        let starters = self.starters(&hosts)?;
        Ok(gate::open(&starters, &order, &|progress| reporter.report(progress)).await)
    }

    async fn tune(
        self,
        hosts: Arc<[Host]>,
        network: Option<gridcast_core::report::Network>,
    ) -> Result<Tuned, StepFailure> {
        let order = tune::Order {
            tcp: self.cluster.spec.tcp(),
            network,
            probes: self.cluster.spec.probe().count.unsigned_abs(),
            owner: self.uid().to_owned(),
        };
        tune::apply(|| reach::agents(&self.context.agents, &hosts), &order).await
    }

    async fn launch(
        self,
        id: String,
        hosts: Arc<[Host]>,
        reporter: Reporter<Launch>,
    ) -> Result<Launch, StepFailure> {
        let Some(run) = &self.cluster.spec.run else {
            return Err(StepFailure::new("NothingToRun", "spec.run: there is no program any more"));
        };
        let order = launch::Order {
            program: program(run)?,
            launcher: launcher(&self.cluster),
            slots: hosts.iter().map(|h| HostSlots { name: h.name.clone(), slots: h.slots }).collect(),
            was_running: was_running(&self.cluster, &id),
            now: self.context.now,
            id,
        };
        let starters = self.starters(&hosts)?;
        launch::follow(&starters, &order, &|progress| reporter.report(progress)).await
    }

    async fn stop(self, id: String, first: Host) -> Result<(), StepFailure> {
        let starters = self.starters(std::slice::from_ref(&first))?;
        let Some(first) = starters.first() else { return Ok(()) };
        gridcast_control::launch::stop(first, &id, LAUNCH_GRACE).await.map(drop)
    }

    async fn collect(self, hosts: Arc<[Host]>, pods: Vec<HelperPod>) -> Result<(), StepFailure> {
        let Some(run) = &self.cluster.spec.run else { return Ok(()) };
        let items = collect::items(run, collect::directory(&self.cluster))?;
        let authority = self.authority(&hosts)?;
        let address = |pod: &HelperPod| pod.pod.address.clone().unwrap_or_default();
        let agents: Result<Vec<Remote>, StepFailure> =
            pods.iter().map(|pod| reach::member(&authority, &pod.name, &address(pod), AGENT_PORT)).collect();
        let members: Vec<wire::Peer> = self.starters(&hosts)?.iter().map(Remote::peer).collect();
        collect::bring(&agents?, &members, &items).await
    }

    async fn release(self, hosts: Arc<[Host]>) -> Result<Released, StepFailure> {
        let agents = || reach::some_agents(&self.context.agents, &hosts);
        let shown = self.cluster.status.as_ref().map_or(&[][..], |status| &status.tcp);
        Ok(tune::restore(agents, hosts.len(), self.uid(), shown, tune::RESTORE_PATIENCE).await)
    }

    fn starters(&self, hosts: &[Host]) -> Result<Vec<Remote>, StepFailure> {
        reach::starters(&self.authority(hosts)?, hosts, self.context.settings.starter_port)
    }

    /// Of the keys that the nodes have, which may be others than those that are asked for.
    fn authority(&self, hosts: &[Host]) -> Result<ClusterAuthority, StepFailure> {
        let generation = u32::try_from(keys_in_use(&self.cluster, hosts)).unwrap_or(u32::MAX);
        Ok(self.context.authority.cluster(self.uid(), generation)?)
    }

    fn uid(&self) -> &str {
        self.cluster.metadata.uid.as_deref().unwrap_or_default()
    }
}

fn program(run: &Run) -> Result<Program, StepFailure> {
    Program::try_from(run).map_err(|error| StepFailure::new("Unsupported", error.to_string()))
}

/// Whether the status says that this launch was seen to run.
fn was_running(cluster: &VirtualCluster, id: &str) -> bool {
    let Some(status) = &cluster.status else { return false };
    let named = status.run.as_ref().and_then(|run| run.launch.as_deref()) == Some(id);
    // Until its first rank was seen it is `Launched`: published, and perhaps not asked for yet.
    let running = status
        .conditions
        .iter()
        .any(|c| c.type_ == conditions::RUNNING && c.status == "True" && c.reason == "Running");
    named && running
}
