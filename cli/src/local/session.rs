//! Goes through the steps of a run, by core's lifecycle, and undoes everything at the end, however it ends.

mod account;

use std::{process::ExitCode, time::Duration};

use gridcast_core::{
    lifecycle::{self, Ending, Next, Step, Wanted},
    report::{Dataset, Network, Outcome, TcpSetting},
};
use gridcast_crds::virtual_cluster::TcpMode;
use tokio::sync::mpsc;

use crate::{
    args,
    failure::{Failure, OrFailed as _},
};

use super::{
    cluster::{Cluster, Loss},
    collect,
    intake::{self, Intake},
    interrupts::Interrupts,
    keeper,
    launch::{self, Launched},
    measure,
    progress::Progress,
    provision::{self, Tools},
    stage,
    state::{Kind, OwnedRun, StateDir},
    tune,
};

/// A node that does not answer does not hold up the end.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(5);
/// A step that failed because something went away may be heard of before the loss itself.
const LOSS_HEARD: Duration = Duration::from_millis(300);

/// `gridcast local run`.
pub(crate) async fn run(arguments: args::Run) -> Result<ExitCode, Failure> {
    let (mut session, mut interrupts) = Session::open(arguments, Kind::Run)?;
    let ending = session.go(async || interrupts.next().await).await;
    session.report(&ending)?;
    Ok(exit_code(&ending))
}

/// `gridcast local keep`: the process behind `gridcast local up`.
pub(crate) async fn keep(arguments: args::Run) -> Result<ExitCode, Failure> {
    keeper::leave_session();
    let (mut session, mut interrupts) = Session::open(arguments, Kind::Up)?;
    let ending = session
        .go(async || tokio::select! { () = interrupts.next() => (), () = keeper::starter_gone() => () })
        .await;
    let reported = session.report(&ending);
    if ending.outcome != Outcome::Complete {
        return reported.map(|()| exit_code(&ending));
    }
    let detached = match reported.and_then(|()| session.write_record(true)) {
        Ok(()) => {
            session.say_up();
            keeper::detach(&session.run.path.join("log/keeper.log"))
        }
        Err(error) => Err(error),
    };
    if detached.is_ok() {
        session.until_down(&mut interrupts).await;
    }
    let released = session.release().await;
    // Settings are restored now, and the report says so.
    let written = session.write_report(&ending).map(drop);
    session.finish()?;
    detached.and(released).and(written).map(|()| ExitCode::SUCCESS)
}

fn exit_code(ending: &Ending) -> ExitCode {
    ExitCode::from(u8::try_from(ending.command_exit_code()).unwrap_or(1))
}

/// One run on its way.
struct Session {
    arguments: args::Run,
    kind: Kind,
    intake: Intake,
    tools: Tools,
    clock: Progress,
    wanted: Wanted,
    progress: lifecycle::Progress,
    state: StateDir,
    run: OwnedRun,
    cluster: Option<Cluster>,
    losses: (mpsc::Sender<Loss>, mpsc::Receiver<Loss>),
    /// What was lost while the cluster was up, for `ps`.
    lost: Vec<String>,
    network: Option<Network>,
    tcp: Option<Vec<TcpSetting>>,
    data: Vec<Dataset>,
    launched: Option<Launched>,
}

impl Session {
    /// Checks the input, then takes a place in the state directory. Nothing else is made.
    fn open(arguments: args::Run, kind: Kind) -> Result<(Self, Interrupts), Failure> {
        let clock = Progress::start(arguments.quiet);
        super::needs_root(if kind == Kind::Run { "local run" } else { "local up" })?;
        let intake = intake::read(&arguments)?;
        let tools = Tools::find()?;
        // From here on Ctrl-C means to undo; before, there is nothing to undo and it just ends the command.
        let interrupts = Interrupts::listen()?;
        let state = StateDir::open(&arguments.state.state_dir)?;
        match state.clean(false) {
            Ok(stale) if stale.is_empty() => {}
            Ok(stale) => clock.say("clean", &format!("removed what was left of {}", stale.join(" "))),
            // What others left does not hold this run up.
            Err(error) => clock.warn(&error.to_string()),
        }
        let _exclusive = state.exclusive()?;
        if kind == Kind::Up && state.is_up(&intake.name) {
            // `exec` and `down` find a cluster by its name.
            let name = &intake.name;
            return Err(Failure::input(format!(
                "metadata.name: a cluster {name} is up already; take it down with `gridcast local down --name \
                 {name}`, or choose another name"
            )));
        }
        let run = state.create().map_err(Failure::nothing_made)?;
        let wanted = Wanted {
            measure: intake.probe.is_some(),
            tune: intake.tcp.mode != TcpMode::Off,
            stage: intake.data.len(),
            run: kind == Kind::Run && intake.run.is_some(),
            collect: intake.run.as_ref().is_some_and(|r| !r.collect.is_empty()),
            release: kind == Kind::Run,
            deadline_seconds: intake.deadline_seconds,
        };
        let session = Self {
            arguments,
            kind,
            intake,
            tools,
            clock,
            wanted,
            progress: lifecycle::Progress::default(),
            state,
            run,
            cluster: None,
            losses: mpsc::channel(256),
            lost: Vec::new(),
            network: None,
            tcp: None,
            data: Vec::new(),
            launched: None,
        };
        if let Err(error) = session.write_record(false) {
            session.run.finish(false)?;
            return Err(error.nothing_made());
        }
        Ok((session, interrupts))
    }

    /// Does what the lifecycle says until it says that it is over.
    async fn go(&mut self, mut interrupted: impl AsyncFnMut()) -> Ending {
        self.say_begin();
        loop {
            let step = match lifecycle::next(&self.wanted, &self.progress, self.clock.now()) {
                Next::Done(ending) => return ending,
                Next::Do(step) => step,
            };
            self.progress.started(step, self.clock.now());
            if step == Step::Release {
                let released = self.release().await;
                self.settle(step, released);
                continue;
            }
            let left = lifecycle::remaining_seconds(&self.wanted, self.clock.now());
            let deadline = async {
                match left {
                    Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds)).await,
                    None => std::future::pending().await,
                }
            };
            // Taken out so that a step may borrow the session while the channel is listened to.
            let (losses, mut lost) = std::mem::replace(&mut self.losses, mpsc::channel(1));
            let mut end = tokio::select! {
                biased;
                () = interrupted() => StepEnd::Interrupted,
                () = deadline => StepEnd::Expired,
                result = self.step(step, &losses) => StepEnd::Ended(result),
                Some(loss) = lost.recv() => StepEnd::Lost(loss),
            };
            if matches!(end, StepEnd::Ended(Err(_))) {
                // What a step says of a loss, or of a Ctrl-C that reached what it had just started, is its consequence, and
                // may be heard first.
                tokio::select! {
                    biased;
                    () = interrupted() => end = StepEnd::Interrupted,
                    Some(loss) = lost.recv() => end = StepEnd::Lost(loss),
                    () = tokio::time::sleep(LOSS_HEARD) => {}
                }
            }
            self.losses = (losses, lost);
            if step == Step::Launch && self.launched.is_none() {
                self.note_cut_short().await;
            }
            let now = self.clock.now();
            match end {
                StepEnd::Interrupted => self.progress.interrupt(&self.wanted, now),
                StepEnd::Expired => self.progress.expire(&self.wanted, now),
                StepEnd::Lost(loss) => self.progress.failed(step, loss.reason, loss.message, now),
                StepEnd::Ended(result) => self.settle(step, result),
            }
        }
    }

    fn settle(&mut self, step: Step, result: Result<(), Failure>) {
        let now = self.clock.now();
        match result {
            Ok(()) if step == Step::Launch => {}
            Ok(()) => self.progress.completed(&self.wanted, step, now),
            Err(Failure::Failed { reason, message }) => self.progress.failed(step, reason, message, now),
            Err(Failure::Input(message)) => self.progress.failed(step, "InvalidInput", message, now),
        }
        if let (Step::Launch, Some(launched)) = (step, &self.launched)
            && launched.ended
        {
            self.progress.program_ended(launched.exit_code, now);
        }
    }

    async fn step(&mut self, step: Step, losses: &mpsc::Sender<Loss>) -> Result<(), Failure> {
        match step {
            Step::Provision => self.provision(losses).await,
            Step::Measure => self.measure().await,
            Step::Tune => self.tune().await,
            Step::Stage => self.stage().await,
            Step::Launch => self.launch().await,
            Step::Collect => self.collect().await,
            Step::Release => Ok(()),
        }
    }

    fn cluster(&self) -> Result<&Cluster, Failure> {
        self.cluster.as_ref().ok_or_else(|| Failure::failed("NotProvisioned", "there are no nodes"))
    }

    async fn provision(&mut self, losses: &mpsc::Sender<Loss>) -> Result<(), Failure> {
        let cluster = provision::provision(&self.intake, &self.run, &self.tools).await?;
        cluster.watch(&self.run, losses)?;
        self.clock.say(
            "provision",
            &format!("{} nodes on one fabric, an agent in each answers", cluster.remotes.len()),
        );
        self.cluster = Some(cluster);
        self.write_record(false)
    }

    async fn measure(&mut self) -> Result<(), Failure> {
        let Some(probe) = &self.intake.probe else { return Ok(()) };
        let network = measure::measure(&self.intake, self.cluster()?, probe, &self.clock).await?;
        for worst in &network.worst {
            let (what, unit) = match worst.quantity.as_str() {
                "rttMilliseconds" => ("longest round trip", " ms"),
                "jitterMilliseconds" => ("most jitter", " ms"),
                "lossPercent" => ("most loss", " %"),
                "bandwidthMbps" => ("least bandwidth", " Mbit/s"),
                other => (other, ""),
            };
            let text = format!("{what}: {} to {}, {:.3}{unit}", worst.from, worst.to, worst.value);
            self.clock.say("measure", &text);
        }
        let gate = measure::gate(self.intake.require.as_ref(), &network, &self.clock);
        self.network = Some(network);
        gate
    }

    async fn tune(&mut self) -> Result<(), Failure> {
        let settings =
            tune::tune(&self.intake, self.cluster()?, self.network.as_ref(), &self.run.id, &self.clock)
                .await?;
        self.tcp = Some(settings);
        Ok(())
    }

    async fn stage(&mut self) -> Result<(), Failure> {
        let index = self.progress.staged;
        let dataset = stage::stage(&self.intake, self.cluster()?, index, &self.clock).await?;
        self.clock.say(
            "stage",
            &format!(
                "{}: {:.0} Mbit/s together, {:.1} % of the bound, every node verified",
                dataset.name,
                dataset.aggregate_mbps,
                100.0 * dataset.aggregate_mbps / dataset.bound_mbps.max(f64::MIN_POSITIVE)
            ),
        );
        self.data.push(dataset);
        Ok(())
    }

    async fn launch(&mut self) -> Result<(), Failure> {
        let Some(run) = &self.intake.run else { return Ok(()) };
        let launched = launch::launch(&self.intake, run, self.cluster()?, &self.run.id, &self.clock).await?;
        if let Some(first) = launched.first_rank {
            self.progress.rank_seen(first);
        }
        self.clock.say("launch", &format!("the program ended with code {}", launched.exit_code));
        let problem = launched.problem.clone();
        self.launched = Some(launched);
        match problem {
            Some((reason, message)) => Err(Failure::Failed { reason, message }),
            None => Ok(()),
        }
    }

    /// What was seen of a program that did not end by itself.
    async fn note_cut_short(&mut self) {
        let Some(cluster) = &self.cluster else { return };
        let launched = self.progress.timeline.launched.unwrap_or_default();
        self.launched = launch::cut_short(cluster, &self.run.id, launched, &self.clock).await;
        if let Some(first) = self.launched.as_ref().and_then(|l| l.first_rank) {
            self.progress.rank_seen(first);
        }
    }

    async fn collect(&mut self) -> Result<(), Failure> {
        let plans = self.intake.run.iter().flat_map(|r| r.collect.clone());
        for plan in plans.collect::<Vec<_>>() {
            collect::collect(self.cluster()?, &plan, &self.clock).await?;
        }
        Ok(())
    }

    /// Restores settings, then ends everything.
    async fn release(&mut self) -> Result<(), Failure> {
        let Some(cluster) = self.cluster.take() else { return Ok(()) };
        if let (TcpMode::Apply, Some(settings)) = (self.intake.tcp.mode, &mut self.tcp) {
            tune::restore(&cluster, &self.run.id, settings, RESTORE_TIMEOUT).await;
        }
        let stopped = tokio::task::spawn_blocking(move || cluster.stop()).await;
        self.clock.say("release", "settings restored, nodes and fabric ended");
        stopped.or_failed("ReleaseFailed", "end the nodes")?
    }

    /// Waits for `local down`. A loss does not end the cluster, for the user may be in the middle of work that does
    /// not need what was lost; it is noted where `ps` shows it.
    async fn until_down(&mut self, interrupts: &mut Interrupts) {
        loop {
            tokio::select! {
                () = interrupts.next() => return,
                Some(loss) = self.losses.1.recv() => {
                    self.clock.warn(&format!("{}: {}", loss.reason, loss.message));
                    self.lost.push(loss.message);
                    if let Err(error) = self.write_record(true) {
                        self.clock.warn(&error.to_string());
                    }
                }
            }
        }
    }

    /// Removes the run's files, or marks them as kept.
    fn finish(&mut self) -> Result<(), Failure> {
        self.run.finish(self.arguments.keep)
    }
}

enum StepEnd {
    Interrupted,
    Expired,
    Lost(Loss),
    Ended(Result<(), Failure>),
}
