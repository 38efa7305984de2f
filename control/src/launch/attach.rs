//! A launch that outlives its callers: started or found again by its id, followed to its end, stopped.

use std::time::Duration;

use gridcast_proto::v1::{LaunchRequest, StopLaunchRequest, launch_event::Event};

use super::Ended;
use crate::{Remote, StepFailure, is_gone, remote::within};

/// What happens while a launch runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchUpdate {
    /// It runs, and has for so long.
    Started {
        /// Since it was started, which may have been by another caller.
        age: Duration,
    },
    /// The end of what it wrote. A caller that is slow misses the middle.
    Output(Vec<u8>),
}

/// How a launch ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// The launcher's end, for [`super::judge`].
    pub ended: Ended,
    /// The end of all output, at most 64 KiB.
    pub output_tail: Vec<u8>,
    /// How long ago.
    pub age: Duration,
}

/// Has `first` start a launch, or finds the one of the same id, and follows it to its end. Dropping the future leaves the
/// launch running.
///
/// `LaunchUnknown` where `request.attach_only` and there is none (any more); `NodeLost` where the starter goes away.
pub async fn attach(
    first: &Remote,
    request: LaunchRequest,
    on_update: &mut (dyn FnMut(LaunchUpdate) + Send),
) -> Result<Followed, StepFailure> {
    let failed = |status: &tonic::Status| match status.code() {
        tonic::Code::NotFound => {
            StepFailure::new("LaunchUnknown", format!("{}: {}", first.name, status.message()))
        }
        _ if is_gone(status) => {
            StepFailure::new("NodeLost", first.failed("", "the program runs", status).message)
        }
        _ => first.failed("StarterRefused", "starting the program", status),
    };
    let mut starter = first.starter().map_err(|s| failed(&s))?;
    let mut events = starter.launch(request).await.map_err(|s| failed(&s))?.into_inner();
    while let Some(event) = events.message().await.map_err(|s| failed(&s))? {
        match event.event {
            Some(Event::Started(started)) => {
                on_update(LaunchUpdate::Started { age: Duration::from_micros(started.age_micros) });
            }
            Some(Event::Output(output)) => on_update(LaunchUpdate::Output(output.data.into())),
            Some(Event::Ended(ended)) => {
                return Ok(Followed {
                    ended: Ended {
                        code: ended.code,
                        signal: ended.signal,
                        stderr_tail: ended.stderr_tail.into(),
                    },
                    output_tail: ended.output_tail.into(),
                    age: Duration::from_micros(ended.age_micros),
                });
            }
            Some(Event::Failed(f)) => {
                return Err(StepFailure::new(f.reason, format!("{}: {}", first.name, f.message)));
            }
            None => {}
        }
    }
    Err(StepFailure::new("NodeLost", format!("{}: the starter ended the call", first.name)))
}

/// Ends a launch: SIGTERM, after `grace` SIGKILL. Returns once it has ended; whether it was running.
pub async fn stop(first: &Remote, launch: &str, grace: Duration) -> Result<bool, StepFailure> {
    let request = StopLaunchRequest {
        id: launch.to_owned(),
        grace_millis: u32::try_from(grace.as_millis()).unwrap_or(u32::MAX),
    };
    let reply = match first.starter() {
        Ok(mut starter) => within(grace + Duration::from_secs(10), starter.stop_launch(request)).await,
        Err(status) => Err(status),
    };
    let reply = reply.map_err(|s| first.failed("StopFailed", "stopping the program", &s))?;
    Ok(reply.was_running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_can_be_tasks() {
        fn task<T: Send>(_: impl FnOnce(&'static Remote) -> T) {}
        task(|remote| async { attach(remote, LaunchRequest::default(), &mut |_| ()).await });
        task(|remote| stop(remote, "", Duration::ZERO));
    }
}
