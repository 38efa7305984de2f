//! A cluster that runs: how is it reached, what is shown in it, what of it went away, how does it end?

use std::{
    fs,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

use gridcast_control::{Remote, is_gone};
use gridcast_lab::{Lifetime, fabric::Fabric, node::Node};
use gridcast_proto::v1::{DescribeReply, DescribeRequest, RanksRequest, WatchRequest};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::sync::mpsc;

use crate::failure::{Failure, OrFailed as _};

use super::state::{NodeRecord, OwnedRun, Process};

/// Agents and starters answer within milliseconds; on a loaded machine with many nodes, within seconds.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// From the end of a node's agent to that of its first process, where both end.
const NODE_END: Duration = Duration::from_millis(100);

/// Something of a cluster that went away by itself.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    /// One PascalCase word.
    pub(crate) reason: &'static str,
    /// Names the node.
    pub(crate) message: String,
}

/// A provisioned cluster. Dropping it ends all of its processes.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) remotes: Vec<Remote>,
    /// What each agent said of its host, in the order of nodes.
    pub(crate) facts: Vec<DescribeReply>,
    pub(crate) records: Vec<NodeRecord>,
    /// Each dataset's origin: its path on this machine, and in the first node.
    pub(crate) origins: Vec<(PathBuf, PathBuf)>,
    pub(super) agents: Vec<Child>,
    pub(super) nodes: Vec<Node>,
    pub(super) fabric: Fabric,
    // Last: nodes and fabric are asked to end first, and end in any case when this closes.
    pub(super) _lifetime: Lifetime,
}

impl Cluster {
    /// Processes outside the nodes.
    pub(crate) fn processes(&self) -> Vec<Process> {
        i32::try_from(self.fabric.pid()).ok().and_then(Process::of).into_iter().collect()
    }

    /// Waits until each agent and each starter answers.
    pub(super) async fn await_answers(&mut self, run: &OwnedRun) -> Result<(), Failure> {
        let waits = self.remotes.iter().map(|remote| async move {
            let agent = retry(async || remote.agent().describe(DescribeRequest::default()).await);
            let starter = retry(async || remote.starter()?.ranks(RanksRequest::default()).await);
            let (facts, starter) = tokio::join!(agent, starter);
            let late = |what: &str, reason: &str, status: &tonic::Status| {
                let log = run.path.join("log").join(format!("{}-{what}.log", remote.name));
                Failure::failed(
                    reason,
                    format!(
                        "{}: the {what} does not answer: {}{}",
                        remote.name,
                        status.message(),
                        last_line(&log)
                    ),
                )
            };
            starter.map_err(|s| late("starter", "NoStarter", &s))?;
            facts.map_err(|s| late("agent", "NoAgent", &s))
        });
        self.facts = futures::future::try_join_all(waits).await?;
        Ok(())
    }

    /// Tells through `lost` what goes away, for as long as the cluster lives: an agent, a whole node, the fabric.
    pub(crate) fn watch(&self, run: &OwnedRun, lost: &mpsc::Sender<Loss>) -> Result<(), Failure> {
        for (remote, record) in self.remotes.iter().zip(&self.records) {
            let (remote, init, lost) = (remote.clone(), record.init, lost.clone());
            let log = run.path.join("log").join(format!("{}-agent.log", remote.name));
            tokio::spawn(async move {
                if let Ok(events) = remote.agent().watch(WatchRequest {}).await {
                    let mut events = events.into_inner();
                    while let Ok(Some(_)) = events.message().await {}
                }
                // With its node an agent goes first.
                tokio::time::sleep(NODE_END).await;
                let (reason, what) = if init.alive() {
                    ("AgentLost", format!("its agent is gone{}", last_line(&log)))
                } else {
                    ("NodeLost", "its first process, the starter, is gone, and the node with it".to_owned())
                };
                // Nobody listens once the cluster is released.
                let _ = lost.send(Loss { reason, message: format!("{}: {what}", remote.name) }).await;
            });
        }
        let end = self.fabric.watch().or_failed("ProvisionFailed", "watch the fabric")?;
        let (lost, log) = (lost.clone(), run.path.join("log/fabric.log"));
        // Ends with the fabric, which the release ends.
        std::thread::spawn(move || {
            while poll(&mut [PollFd::new(end.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)
                == Err(Errno::EINTR)
            {}
            let message =
                format!("the process that is the network between the nodes is gone{}", last_line(&log));
            let _ = lost.blocking_send(Loss { reason: "FabricLost", message });
        });
        Ok(())
    }

    /// Shows a staged dataset at its mount path, read-only, on every node.
    pub(crate) fn mount(&self, staged: &Path, mount_path: &Path) -> Result<(), Failure> {
        for node in &self.nodes {
            gridcast_lab::node::bind(node.pid(), staged, mount_path, true).or_failed(
                "MountFailed",
                format!("mount {} at {} on {}", staged.display(), mount_path.display(), node.name()),
            )?;
        }
        Ok(())
    }

    /// Ends everything and waits until it is gone.
    pub(crate) fn stop(mut self) -> Result<(), Failure> {
        let stopped: Vec<std::io::Result<_>> = std::thread::scope(|scope| {
            let waits: Vec<_> = self.nodes.iter_mut().map(|node| scope.spawn(|| node.stop())).collect();
            waits.into_iter().filter_map(|w| w.join().ok()).collect()
        });
        let fabric = self.fabric.stop();
        self.reap_agents();
        for (result, record) in stopped.into_iter().zip(&self.records) {
            result.or_failed("ReleaseFailed", format!("end node {}", record.name))?;
        }
        fabric.map(drop).or_failed("ReleaseFailed", "end the fabric")
    }

    /// The agents ended with their nodes.
    fn reap_agents(&mut self) {
        for agent in &mut self.agents {
            let _ = agent.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        self.reap_agents();
    }
}

/// The last complaint of a log, as the end of a sentence: what a process said of its daily work does not explain its end.
fn last_line(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let complains = |line: &&str| ["ERROR", "panicked", "rror:"].iter().any(|word| line.contains(word));
    text.lines().rfind(complains).map(|l| format!("; it said: {}", l.trim())).unwrap_or_default()
}

/// Asks again while the server is not there yet, up to [`READY_TIMEOUT`].
async fn retry<T>(
    mut call: impl AsyncFnMut() -> Result<tonic::Response<T>, tonic::Status>,
) -> Result<T, tonic::Status> {
    let deadline = tokio::time::Instant::now() + READY_TIMEOUT;
    loop {
        match tokio::time::timeout_at(deadline, call()).await {
            Ok(Ok(reply)) => return Ok(reply.into_inner()),
            Ok(Err(status)) if !is_gone(&status) => return Err(status),
            Ok(Err(status)) if tokio::time::Instant::now() >= deadline => return Err(status),
            Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(_) => {
                return Err(tonic::Status::deadline_exceeded(format!("no answer in {READY_TIMEOUT:?}")));
            }
        }
    }
}
