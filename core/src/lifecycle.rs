//! What does a virtual cluster need next?
//!
//! A driver asks [`next`], does the one step that it names, records the result in a [`Progress`], and asks again until it is
//! told [`Next::Done`]. Nothing here acts or looks at a clock: `now` is seconds from the moment the cluster was created.
//!
//! The local run is driven so. On Kubernetes data is staged while pods are made, a lost node closes the gate again and a
//! program is started more than once: the operator plans by what it observes instead, and what must not be forgotten is in
//! the conditions of the object.
//!
//! The first cause ends the run: what fails afterwards, because the first failure or the user's Ctrl-C pulled the
//! ground away, does not overwrite it. Whatever was made is released on every path.

use crate::report::{Outcome, Timeline};

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Make the nodes and wait until each agent and starter answers.
    Provision,
    /// Probe the network between the nodes.
    Measure,
    /// Write TCP settings on the nodes (or plan them, in a dry run).
    Tune,
    /// Carry one dataset to all nodes: number [`Progress::staged`] of the manifest.
    Stage,
    /// Run the program.
    Launch,
    /// Bring its results home.
    Collect,
    /// Restore settings, stop and remove what was made.
    Release,
}

/// The steps that a cluster can go through before its program starts.
const PREPARATION: [Step; 4] = [Step::Provision, Step::Measure, Step::Tune, Step::Stage];

/// What the manifest asks for.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a step that the manifest asks for or does not")]
pub struct Wanted {
    /// Measure the network before the run.
    pub measure: bool,
    /// Tune TCP (`Apply` or `DryRun`).
    pub tune: bool,
    /// Number of datasets.
    pub stage: usize,
    /// There is a program.
    pub run: bool,
    /// Its results are wanted.
    pub collect: bool,
    /// Release at the end. False keeps the cluster after success (`gridcast local up`, `--keep`); what failed or was
    /// interrupted is released all the same.
    pub release: bool,
    /// Seconds from `created` after which no step but the release goes on.
    pub deadline_seconds: Option<f64>,
}

/// Why a run did not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The step that failed.
    pub step: Step,
    /// One PascalCase word.
    pub reason: String,
    /// Names the host, rank or file.
    pub message: String,
}

/// What happened so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// When each state was reached; goes into the report as it is.
    pub timeline: Timeline,
    /// Something was made that a release must undo.
    pub made: bool,
    /// Datasets that are on every node, verified.
    pub staged: usize,
    /// The program's exit code once it ended (128 + signal).
    pub exit_code: Option<i32>,
    /// Results were brought home, or that was tried and failed.
    pub collected: bool,
    /// Everything made was undone.
    pub released: bool,
    /// The first failure.
    pub failure: Option<Failure>,
    /// The step in which the user stopped it, before anything had failed.
    pub interrupted: Option<Step>,
}

/// How it ended, in the report's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Complete, Failed or Interrupted.
    pub outcome: Outcome,
    /// One PascalCase word; empty when complete.
    pub reason: String,
    /// Names the host, rank or file; empty when complete.
    pub message: String,
    /// The report's `exitCode`: the program's where one ended, else the command's.
    pub exit_code: i32,
}

impl Ending {
    /// The exit code of the command itself: 0, 1 or 130.
    pub fn command_exit_code(&self) -> i32 {
        command_exit_code(self.outcome)
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This step.
    Do(Step),
    /// Nothing: it is over.
    Done(Ending),
}

/// The exit code of a command whose run ended so.
pub fn command_exit_code(outcome: Outcome) -> i32 {
    match outcome {
        // A report of what goes on has not failed.
        Outcome::Complete | Outcome::Unfinished => 0,
        Outcome::Failed => 1,
        Outcome::Interrupted => 130,
    }
}

/// What the cluster needs next. `now` in seconds from its creation.
pub fn next(wanted: &Wanted, progress: &Progress, now: f64) -> Next {
    let work = pending_work(wanted, progress);
    let ending = ending(wanted, progress, work, now);
    if let Some(step) = work
        && (ending.outcome == Outcome::Complete || collects_in_spite(wanted, progress, step, now))
    {
        return Next::Do(step);
    }
    let keep = ending.outcome == Outcome::Complete && !wanted.release;
    if progress.made && !progress.released && !keep { Next::Do(Step::Release) } else { Next::Done(ending) }
}

/// Seconds that are left until the deadline: how long a driver may wait for a step. None without a deadline.
pub fn remaining_seconds(wanted: &Wanted, now: f64) -> Option<f64> {
    wanted.deadline_seconds.map(|deadline| (deadline - now).max(0.0))
}

/// The first step that is wanted and has not happened. None when all work is done.
fn pending_work(wanted: &Wanted, progress: &Progress) -> Option<Step> {
    let timeline = &progress.timeline;
    PREPARATION
        .into_iter()
        .find(|step| match step {
            Step::Provision => timeline.ready.is_none(),
            Step::Measure => wanted.measure && timeline.measured.is_none(),
            Step::Tune => wanted.tune && timeline.tuned.is_none(),
            Step::Stage => progress.staged < wanted.stage,
            Step::Launch | Step::Collect | Step::Release => false,
        })
        .or((wanted.run && progress.exit_code.is_none()).then_some(Step::Launch))
        .or((wanted.run && wanted.collect && !progress.collected).then_some(Step::Collect))
}

/// How it ends if nothing more is done: `Complete` as long as nothing speaks against it.
fn ending(wanted: &Wanted, progress: &Progress, work: Option<Step>, now: f64) -> Ending {
    let ended = |outcome, reason: &str, message: String| Ending {
        outcome,
        reason: reason.to_owned(),
        message,
        exit_code: progress.exit_code.unwrap_or_else(|| command_exit_code(outcome)),
    };
    if let Some(failure) = &progress.failure {
        return ended(Outcome::Failed, &failure.reason, failure.message.clone());
    }
    if let Some(step) = progress.interrupted {
        return ended(Outcome::Interrupted, "Interrupted", format!("stopped by the user {}", phase(step)));
    }
    if let Some(code) = progress.exit_code.filter(|code| *code != 0) {
        return ended(Outcome::Failed, "ProgramFailed", format!("the program ended with code {code}"));
    }
    if let Some(failure) = work.and_then(|step| overdue(wanted, step, now)) {
        return ended(Outcome::Failed, &failure.reason, failure.message);
    }
    ended(Outcome::Complete, "", String::new())
}

/// Results of a program that ended by itself are brought home even when it failed or ran in the wrong place: the nodes'
/// disks go away with the release, and hours of output with them.
fn collects_in_spite(wanted: &Wanted, progress: &Progress, step: Step, now: f64) -> bool {
    step == Step::Collect
        && progress.interrupted.is_none()
        && progress.failure.as_ref().is_none_or(|failure| failure.step == Step::Launch)
        && overdue(wanted, step, now).is_none()
}

/// The failure of a run whose deadline passes in this step.
fn overdue(wanted: &Wanted, step: Step, now: f64) -> Option<Failure> {
    let seconds = wanted.deadline_seconds.filter(|deadline| now >= *deadline)?;
    let message =
        format!("activeDeadlineSeconds: {seconds} s passed {}; raise it or ask for less", phase(step));
    Some(Failure { step, reason: "DeadlineExceeded".to_owned(), message })
}

/// When something happened, in words for a message.
fn phase(step: Step) -> &'static str {
    match step {
        Step::Provision => "while the nodes were made",
        Step::Measure => "while the network was measured",
        Step::Tune => "while TCP was tuned",
        Step::Stage => "while data was staged",
        Step::Launch => "while the program ran",
        Step::Collect => "while results were collected",
        Step::Release => "while the cluster was released",
    }
}

impl Progress {
    /// Records that a step begins. What it makes must be released from here on, even if it fails half-way.
    pub fn started(&mut self, step: Step, now: f64) {
        match step {
            Step::Provision => self.made = true,
            Step::Launch => self.timeline.launched = Some(now),
            Step::Release => self.finish(now),
            Step::Measure | Step::Tune | Step::Stage | Step::Collect => {}
        }
    }

    /// Records that a step ended well. A launch ends by [`Progress::program_ended`] instead.
    pub fn completed(&mut self, wanted: &Wanted, step: Step, now: f64) {
        match step {
            Step::Provision => self.timeline.ready = Some(now),
            Step::Measure => self.timeline.measured = Some(now),
            Step::Tune => self.timeline.tuned = Some(now),
            Step::Stage => {
                self.staged = (self.staged + 1).min(wanted.stage);
                if self.staged == wanted.stage {
                    self.timeline.staged = Some(now);
                }
            }
            Step::Launch => self.program_ended(0, now),
            Step::Collect => self.collected = true,
            Step::Release => {
                self.finish(now);
                self.released = true;
            }
        }
        if pending_work(wanted, self).is_none() {
            self.finish(now);
        }
    }

    /// Records the first rank that was seen; later ones change nothing.
    pub fn rank_seen(&mut self, now: f64) {
        self.timeline.first_rank.get_or_insert(now);
    }

    /// Records the end of a program that ended by itself: its exit code, or 128 + the signal that ended it. Not for a
    /// program that the driver stopped because of a failure, the deadline or the user.
    pub fn program_ended(&mut self, exit_code: i32, now: f64) {
        self.exit_code.get_or_insert(exit_code);
        self.finish(now);
    }

    /// Records why a step failed, unless an earlier cause is known.
    pub fn failed(&mut self, step: Step, reason: impl Into<String>, message: impl Into<String>, now: f64) {
        if self.failure.is_none() && self.interrupted.is_none() {
            self.failure = Some(Failure { step, reason: reason.into(), message: message.into() });
        }
        match step {
            Step::Collect => self.collected = true,
            // A release that failed is not tried for ever: what is left is named, and `clean` finishes the job.
            Step::Release => self.released = true,
            _ => {}
        }
        self.finish(now);
    }

    /// Records that the user wants to stop. Nothing changes where all work was done or something had failed already.
    pub fn interrupt(&mut self, wanted: &Wanted, now: f64) {
        if self.failure.is_none()
            && self.interrupted.is_none()
            && let Some(step) = pending_work(wanted, self)
        {
            self.interrupted = Some(step);
            self.finish(now);
        }
    }

    /// Records that the deadline has passed, where it has and work is left. A driver calls it when the time of
    /// [`remaining_seconds`] is over, and then stops what runs.
    pub fn expire(&mut self, wanted: &Wanted, now: f64) {
        if let Some(failure) = pending_work(wanted, self).and_then(|step| overdue(wanted, step, now)) {
            self.failed(failure.step, failure.reason, failure.message, now);
        }
    }

    fn finish(&mut self, now: f64) {
        self.timeline.finished.get_or_insert(now);
    }
}

#[cfg(test)]
mod tests;
