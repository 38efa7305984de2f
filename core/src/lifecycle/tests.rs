use proptest::prelude::*;

use super::*;

fn all() -> Wanted {
    Wanted {
        measure: true,
        tune: true,
        stage: 2,
        run: true,
        collect: true,
        release: true,
        deadline_seconds: Some(60.0),
    }
}

/// Does what it is told, one second a step, until `stop` or the end.
fn drive(
    wanted: &Wanted,
    progress: &mut Progress,
    mut stop: impl FnMut(Step, &mut Progress, f64) -> bool,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut now = 0.0;
    while let Next::Do(step) = next(wanted, progress, now) {
        assert!(steps.len() < 40, "{steps:?} does not end");
        steps.push(step);
        progress.started(step, now);
        now += 1.0;
        if !stop(step, progress, now) {
            progress.completed(wanted, step, now);
        }
    }
    steps
}

fn ending_of(wanted: &Wanted, progress: &Progress) -> Ending {
    match next(wanted, progress, 1000.0) {
        Next::Done(ending) => ending,
        Next::Do(step) => panic!("{step:?} is still to do"),
    }
}

#[test]
fn everything_in_order() {
    use Step::*;
    let mut progress = Progress::default();
    let steps = drive(&all(), &mut progress, |_, _, _| false);
    assert_eq!(steps, [Provision, Measure, Tune, Stage, Stage, Launch, Collect, Release]);
    let ending = ending_of(&all(), &progress);
    assert_eq!((ending.outcome, ending.exit_code), (Outcome::Complete, 0));
    assert!(ending.reason.is_empty() && ending.message.is_empty());
    let timeline = &progress.timeline;
    assert_eq!(timeline.ready, Some(1.0));
    assert_eq!(timeline.staged, Some(5.0), "when the last dataset is on all nodes");
    assert_eq!(timeline.launched, Some(5.0));
    assert_eq!(timeline.finished, Some(6.0), "when the program ended, not when its results were home");
}

#[test]
fn only_what_is_wanted() {
    let mut progress = Progress::default();
    let wanted = Wanted::default();
    assert_eq!(drive(&wanted, &mut progress, |_, _, _| false), [Step::Provision]);
    assert_eq!(ending_of(&wanted, &progress).outcome, Outcome::Complete);
    assert!(!progress.released, "`up` keeps the cluster");
    assert_eq!(progress.timeline.launched, None);
}

#[test]
fn a_failure_releases_and_its_first_cause_stays() {
    let mut progress = Progress::default();
    let steps = drive(&all(), &mut progress, |step, progress, now| {
        if step == Step::Stage {
            progress.failed(step, "AgentLost", "ring-node-2: its agent went away", now);
            progress.failed(step, "Refused", "a consequence", now);
            progress.interrupt(&all(), now);
        }
        step == Step::Stage
    });
    assert_eq!(steps[3..], [Step::Stage, Step::Release]);
    let ending = ending_of(&all(), &progress);
    assert_eq!((ending.outcome, ending.reason.as_str()), (Outcome::Failed, "AgentLost"));
    assert_eq!(ending.exit_code, 1, "no program ended: the command's own");
    assert_eq!(progress.timeline.staged, None);
}

#[test]
fn what_failed_is_released_even_where_success_is_kept() {
    let wanted = Wanted { release: false, ..all() };
    let mut progress = Progress::default();
    let steps = drive(&wanted, &mut progress, |step, progress, now| {
        if step == Step::Provision {
            progress.failed(step, "AgentLost", "x", now);
        }
        step == Step::Provision
    });
    assert_eq!(steps, [Step::Provision, Step::Release]);
}

#[test]
fn a_program_that_fails_gives_its_code_and_its_output() {
    let mut progress = Progress::default();
    let steps = drive(&all(), &mut progress, |step, progress, now| {
        if step == Step::Launch {
            progress.program_ended(139, now);
            progress.failed(step, "RankKilled", "rank 2 on ring-node-2 was killed by signal 11", now);
        }
        step == Step::Launch
    });
    assert_eq!(steps[5..], [Step::Launch, Step::Collect, Step::Release]);
    let ending = ending_of(&all(), &progress);
    assert_eq!((ending.exit_code, ending.command_exit_code()), (139, 1));
    assert_eq!(ending.reason, "RankKilled");
}

#[test]
fn a_code_alone_is_a_failure_too() {
    let mut progress = Progress::default();
    let wanted = Wanted { collect: false, ..all() };
    drive(&wanted, &mut progress, |step, progress, now| {
        if step == Step::Launch {
            progress.program_ended(3, now);
        }
        step == Step::Launch
    });
    let ending = ending_of(&wanted, &progress);
    assert_eq!((ending.reason.as_str(), ending.exit_code), ("ProgramFailed", 3));
    assert_eq!(ending.message, "the program ended with code 3");
}

#[test]
fn results_that_cannot_be_brought_are_tried_once() {
    let mut progress = Progress::default();
    let steps = drive(&all(), &mut progress, |step, progress, now| {
        if step == Step::Collect {
            progress.failed(step, "CollectFailed", "output_00002 is on no node", now);
        }
        step == Step::Collect
    });
    assert_eq!(steps.iter().filter(|step| **step == Step::Collect).count(), 1);
    let ending = ending_of(&all(), &progress);
    assert_eq!((ending.outcome, ending.exit_code), (Outcome::Failed, 0), "the program's code was 0");
}

#[test]
fn an_interruption_stops_the_work_and_releases() {
    let mut progress = Progress::default();
    let steps = drive(&all(), &mut progress, |step, progress, now| {
        if step == Step::Launch {
            progress.interrupt(&all(), now);
            progress.failed(step, "RankKilled", "a consequence", now);
        }
        step == Step::Launch
    });
    assert_eq!(steps.last(), Some(&Step::Release));
    let ending = ending_of(&all(), &progress);
    assert_eq!((ending.outcome, ending.exit_code), (Outcome::Interrupted, 130));
    assert_eq!(ending.message, "stopped by the user while the program ran");
}

#[test]
fn ctrl_c_after_the_work_is_done_changes_nothing() {
    let mut progress = Progress::default();
    drive(&all(), &mut progress, |step, progress, now| {
        if step == Step::Release {
            progress.interrupt(&all(), now);
        }
        false
    });
    assert_eq!(ending_of(&all(), &progress).outcome, Outcome::Complete);
}

#[test]
fn the_deadline_counts_from_the_creation() {
    let wanted = Wanted { deadline_seconds: Some(2.5), ..all() };
    let mut progress = Progress::default();
    let steps = drive(&wanted, &mut progress, |_, _, _| false);
    assert_eq!(steps, [Step::Provision, Step::Measure, Step::Tune, Step::Release]);
    let ending = ending_of(&wanted, &progress);
    assert_eq!((ending.outcome, ending.reason.as_str()), (Outcome::Failed, "DeadlineExceeded"));
    assert_eq!(
        ending.message,
        "activeDeadlineSeconds: 2.5 s passed while data was staged; raise it or ask for less"
    );
    assert_eq!(remaining_seconds(&wanted, 2.0), Some(0.5));
    assert_eq!(remaining_seconds(&wanted, 9.0), Some(0.0));
}

#[test]
fn a_driver_that_stops_the_program_at_the_deadline_says_so() {
    let wanted = Wanted { deadline_seconds: Some(6.0), collect: false, ..all() };
    let mut progress = Progress::default();
    drive(&wanted, &mut progress, |step, progress, now| {
        if step == Step::Launch {
            progress.expire(&wanted, now);
        }
        step == Step::Launch
    });
    assert_eq!(
        ending_of(&wanted, &progress).message.split(';').next().unwrap(),
        "activeDeadlineSeconds: 6 s passed while the program ran"
    );
}

#[test]
fn nothing_made_is_nothing_to_release() {
    let mut progress = Progress::default();
    progress.failed(Step::Provision, "NoMpirun", "mpirun.openmpi is not there", 0.1);
    assert_eq!(
        next(&all(), &progress, 0.1),
        Next::Done(Ending {
            outcome: Outcome::Failed,
            reason: "NoMpirun".to_owned(),
            message: "mpirun.openmpi is not there".to_owned(),
            exit_code: 1,
        })
    );
}

proptest! {
    /// Whatever fails and whenever the user stops: it ends, releases what it made, and says something.
    #[test]
    fn it_always_ends_and_releases(
        measure: bool, tune: bool, stage in 0_usize..4, run: bool, collect: bool, release: bool,
        fail_at in 0_usize..14, interrupt_at in 0_usize..14, code in 0_i32..2,
        deadline_seconds in proptest::option::of(0.0_f64..12.0),
    ) {
        let wanted = Wanted { measure, tune, stage, run, collect, release, deadline_seconds };
        let mut progress = Progress::default();
        let mut count = 0;
        let steps = drive(&wanted, &mut progress, |step, progress, now| {
            count += 1;
            if count == interrupt_at { progress.interrupt(&wanted, now); }
            if count == fail_at { progress.failed(step, "Broken", "a thing broke", now); return true; }
            if step == Step::Launch { progress.program_ended(code, now); return true; }
            progress.interrupted.is_some() && step != Step::Release
        });
        let ending = ending_of(&wanted, &progress);
        let complete = ending.outcome == Outcome::Complete;
        prop_assert_eq!(complete, ending.reason.is_empty());
        prop_assert_eq!(complete, ending.message.is_empty());
        if progress.made && (!complete || release) {
            prop_assert_eq!(steps.last(), Some(&Step::Release));
        }
        prop_assert!(steps.iter().filter(|step| **step == Step::Launch).count() <= 1);
        prop_assert!(progress.timeline.staged.is_none() || progress.staged == wanted.stage);
        if progress.timeline.launched.is_some() {
            prop_assert_eq!(progress.staged, wanted.stage);
            prop_assert!(progress.timeline.ready.is_some());
        }
    }
}
