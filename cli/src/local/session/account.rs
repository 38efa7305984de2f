//! What a session tells: its record to other commands, its report to scripts, its lines to the user.

use std::time::{SystemTime, UNIX_EPOCH};

use gridcast_core::{
    lifecycle::Ending,
    report::{Outcome, Report, Run},
};

use crate::{failure::Failure, record, report};

use super::{
    super::{cluster::Cluster, intake, keeper, launch, progress::Progress, state::Record},
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

    /// Writes the report, prints the table, and removes the run's files unless the cluster stays.
    pub(super) fn report(&mut self, ending: &Ending) -> Result<(), Failure> {
        let report = Report {
            outcome: ending.outcome,
            reason: ending.reason.clone(),
            message: ending.message.clone(),
            exit_code: ending.exit_code,
            name: self.intake.name.clone(),
            timeline: self.progress.timeline.clone(),
            network: self.network.clone(),
            tcp: self.tcp.clone(),
            data: (!self.data.is_empty()).then(|| self.data.clone()),
            run: self.progress.exit_code.map(|exit_code| Run {
                exit_code,
                placement: self.launched.as_ref().map(|l| l.placement.clone()).unwrap_or_default(),
            }),
        };
        let path = self
            .arguments
            .report
            .clone()
            .unwrap_or_else(|| self.state.report(&self.intake.name, &self.run.id));
        let written = record::write(&report, &path);
        if !self.arguments.quiet {
            Progress::show(&report::table(&report));
        }
        match &written {
            Ok(()) => self.clock.say("report", &format!("{}", path.display())),
            Err(error) => self.clock.warn(&error.to_string()),
        }
        if ending.outcome != Outcome::Complete {
            Progress::show(&format!("gridcast: {}: {}\n", ending.reason, ending.message));
        }
        if ending.outcome != Outcome::Complete || self.wanted.release {
            self.finish()?;
        }
        written
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
        self.clock.say(
            "up",
            &format!("try: gridcast local exec {first} -- {} -np {processes} PROGRAM", intake::MPIRUN),
        );
        self.clock.say("up", &format!("end it with: gridcast local down --name {}", self.intake.name));
    }
}
