//! What a session tells: its record to other commands, its report to scripts, its lines to the user.

use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use gridcast_core::{
    lifecycle::Ending,
    mpi::Implementation,
    report::{Outcome, Report, Run},
};

use crate::{args::STATE_DIR, failure::Failure, record, report};

use super::{
    super::{cluster::Cluster, keeper, launch, progress::Progress, state::Record},
    Session,
};

impl Session {
    /// What other commands know of this run.
    pub(super) fn write_record(&self, ready: bool) -> Result<(), Failure> {
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        self.run.record(&Record {
            id: self.run.id.clone(),
            name: self.intake.name.clone(),
            kind: self.kind,
            created: created.saturating_sub(self.clock.now() as u64),
            owner: keeper::me(),
            ready,
            lost: self.lost.clone(),
            nodes: self.cluster.as_ref().map(|c| c.records.clone()).unwrap_or_default(),
            processes: self.cluster.as_ref().map(Cluster::processes).unwrap_or_default(),
            environment: launch::environment(&self.intake),
            directory: self.intake.directory.clone(),
        })
    }

    /// The report as things stand.
    fn account(&self, ending: &Ending) -> Report {
        Report {
            outcome: ending.outcome,
            reason: ending.reason.clone(),
            message: self.located(ending),
            exit_code: ending.exit_code,
            name: self.intake.name.clone(),
            timeline: self.progress.timeline.clone(),
            network: self.network.clone(),
            tcp: self.tcp.clone(),
            data: (!self.data.is_empty()).then(|| self.data.clone()),
            run: self.launched.as_ref().map(|launched| Run {
                exit_code: launched.exit_code,
                restarts: 0,
                placement: launched.placement.clone(),
                log_tail: String::new(),
            }),
        }
    }

    /// What ends a run as a whole names its manifest; other messages name a host, a rank or a file already.
    fn located(&self, ending: &Ending) -> String {
        match ending.reason.as_str() {
            "Interrupted" | "DeadlineExceeded" | "FabricLost" => {
                format!("{}: {}", self.arguments.file.display(), ending.message)
            }
            _ => ending.message.clone(),
        }
    }

    /// Writes the report; says where it is.
    pub(super) fn write_report(&self, ending: &Ending) -> Result<PathBuf, Failure> {
        let default = || self.state.report(&self.intake.name, &self.run.id);
        let path = self.arguments.report.clone().unwrap_or_else(default);
        record::write(&self.account(ending), &path).map(|()| path)
    }

    /// Writes the report, prints the table, and removes the run's files unless the cluster stays.
    pub(super) fn report(&mut self, ending: &Ending) -> Result<(), Failure> {
        let report = self.account(ending);
        let written = self.write_report(ending);
        if !self.arguments.quiet {
            Progress::show(&report::table(&report));
        }
        match &written {
            Ok(path) => self.clock.say("report", &path.display().to_string()),
            Err(error) => self.clock.warn(&error.to_string()),
        }
        if ending.outcome != Outcome::Complete {
            Progress::show(&format!("gridcast: {}: {}\n", report.reason, report.message));
        }
        if ending.outcome != Outcome::Complete || self.wanted.release {
            self.finish()?;
        }
        written.map(drop)
    }

    pub(super) fn say_begin(&self) {
        let (nodes, data) = (self.intake.nodes.len(), self.intake.data.len());
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        self.clock.say(
            "create",
            &format!(
                "{} ({}): {}, {}",
                self.intake.name,
                self.run.id,
                plural(nodes, "node"),
                plural(data, "dataset")
            ),
        );
        for note in &self.intake.notes {
            self.clock.say("create", note);
        }
    }

    pub(super) fn say_up(&self) {
        let first = &self.intake.nodes[0].name;
        let processes: u32 = self.intake.nodes.iter().map(|n| n.slots).sum();
        let place = &self.arguments.state.state_dir;
        let state = if place == Path::new(STATE_DIR) {
            String::new()
        } else {
            format!(" --state-dir {}", place.display())
        };
        let run = self.intake.run.as_ref();
        let mpirun = run.map_or(Implementation::OpenMpi.launcher(), |run| run.program.launcher());
        self.clock.say(
            "up",
            &format!("try: gridcast local exec{state} {first} -- {mpirun} -np {processes} PROGRAM"),
        );
        self.clock.say("up", &format!("end it with: gridcast local down{state} --name {}", self.intake.name));
    }
}
