//! May the program start? Every node knows its fellows, names lead to them from both sides, keys fit, the launcher is there.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use gridcast_proto::v1::{CheckProblem, CheckRequest, ConfigureRequest, Host};
use tonic::Status;

use crate::{
    Remote, STARTER_PORT, StepFailure, is_gone,
    remote::{told, within},
};

/// Nodes that are asked at once.
const AT_ONCE: usize = 64;
/// Problems that are told; the number of all is told besides.
const TOLD: usize = 20;

/// What a gate found: nothing, or what is wrong, host by host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// At most 20, each with a message that begins with its host.
    pub problems: Vec<StepFailure>,
    /// All of them.
    pub total: usize,
}

impl Findings {
    /// Nothing is in the way.
    pub fn is_clear(&self) -> bool {
        self.total == 0
    }

    /// The first problem, and how many more there are.
    pub fn failure(&self) -> Option<StepFailure> {
        let first = self.problems.first()?;
        let message = match self.total {
            0 | 1 => first.message.clone(),
            total => format!("{}; and {} more", first.message, total - 1),
        };
        Some(StepFailure::new(first.reason.clone(), message))
    }

    fn add(&mut self, problem: StepFailure) {
        self.total += 1;
        if self.problems.len() < TOLD {
            self.problems.push(problem);
        }
    }
}

/// Tells every node who its fellows are: `hosts` becomes its /etc/hosts, `machinefile`, unless empty, its machinefile.
/// `limit` for each node.
pub async fn configure(remotes: &[Remote], hosts: &[Host], machinefile: &str, limit: Duration) -> Findings {
    let asks: Vec<_> = remotes
        .iter()
        .map(|remote| async move {
            let request = ConfigureRequest { hosts: hosts.to_vec(), machinefile: machinefile.to_owned() };
            let reply = match remote.starter() {
                Ok(mut starter) => within(limit, starter.configure(request)).await,
                Err(status) => Err(status),
            };
            reply.err().map(|status| refused(remote, "telling it who its fellows are", &status))
        })
        .collect();
    let mut findings = Findings::default();
    let mut answers = stream::iter(asks).buffered(AT_ONCE);
    while let Some(answer) = answers.next().await {
        if let Some(problem) = answer {
            findings.add(problem);
        }
    }
    findings
}

/// Tries from the first node, which launches, to all, and from each to the first: names lead to the current address,
/// starters answer with the right keys, and `program` (the launcher, by PATH or by path) is there on the first.
/// `limit` for each peer of each node.
pub async fn check(remotes: &[Remote], hosts: &[Host], program: &str, limit: Duration) -> Findings {
    let mut findings = Findings::default();
    let Some(first) = remotes.first() else { return findings };
    let of_first: Vec<Host> = hosts.iter().filter(|host| host.name == first.name).cloned().collect();
    let asks: Vec<_> = remotes
        .iter()
        .enumerate()
        .map(|(index, remote)| {
            let (peers, program) =
                if index == 0 { (hosts.to_vec(), program) } else { (of_first.clone(), "") };
            check_from(remote, peers, program, limit)
        })
        .collect();
    let mut answers = stream::iter(asks).buffered(AT_ONCE);
    while let Some(answer) = answers.next().await {
        match answer {
            Ok((problems, total)) => {
                let untold = (total as usize).saturating_sub(problems.len());
                for problem in problems {
                    findings.add(StepFailure::new(problem.reason, problem.message));
                }
                findings.total += untold;
            }
            Err(problem) => findings.add(problem),
        }
    }
    findings
}

async fn check_from(
    remote: &Remote,
    peers: Vec<Host>,
    program: &str,
    limit: Duration,
) -> Result<(Vec<CheckProblem>, u32), StepFailure> {
    // Peers are tried side by side, a few dozen at once.
    let waves = u32::try_from(peers.len().div_ceil(AT_ONCE)).unwrap_or(u32::MAX).max(1);
    let request = CheckRequest {
        peers,
        port: STARTER_PORT.into(),
        program: program.to_owned(),
        timeout_millis: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX),
    };
    let reply = match remote.starter() {
        Ok(mut starter) => {
            within(limit.saturating_mul(waves) + Duration::from_secs(5), starter.check(request)).await
        }
        Err(status) => Err(status),
    };
    let reply = reply.map_err(|status| refused(remote, "checking what a launch needs", &status))?;
    Ok((reply.problems, reply.problems_total))
}

/// A starter that is not there, or does not take our keys.
fn refused(remote: &Remote, what: &str, status: &Status) -> StepFailure {
    let lower = gridcast_core::failure::chain(status).to_lowercase();
    let told = told(status);
    if ["certificate", "handshake", "decrypt", "unknown ca"].iter().any(|word| lower.contains(word)) {
        let text = format!(
            "{}: its starter and this controller do not accept each other's keys: {told}",
            remote.name
        );
        return StepFailure::new("KeyRefused", text);
    }
    if is_gone(status) {
        let text = format!("{}: its starter does not answer while {what}: {told}", remote.name);
        return StepFailure::new("NoStarter", text);
    }
    StepFailure::new("NoStarter", format!("{}: {what}: {}", remote.name, status.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_cut_and_counted() {
        let mut findings = Findings::default();
        assert!(findings.is_clear() && findings.failure().is_none());
        for host in 0..30 {
            findings.add(StepFailure::new("NameUnresolved", format!("n{host}: no such name")));
        }
        assert_eq!((findings.problems.len(), findings.total), (20, 30));
        let failure = findings.failure().unwrap();
        assert_eq!(failure.to_string(), "NameUnresolved: n0: no such name; and 29 more");
    }

    #[test]
    fn steps_can_be_tasks() {
        fn task<T: Send>(_: T) {}
        task(configure(&[], &[], "", Duration::ZERO));
        task(check(&[], &[], "", Duration::ZERO));
    }
}
