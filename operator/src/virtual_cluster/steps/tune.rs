//! Which TCP settings do the members get, and are they put back?

use std::{collections::BTreeSet, time::Duration};

use gridcast_control::{Remote, StepFailure, tune};
use gridcast_core::report::{Network, TcpSetting};
use gridcast_crds::{
    NetworkMap,
    virtual_cluster::{Tcp, TcpMode, status::TunedSetting},
};
use tokio::time::Instant;

use crate::virtual_cluster::{Released, Tuned};

/// Settings that a status has room for.
const SHOWN: usize = 256;
/// Characters of a value in a status.
const VALUE_CHARACTERS: usize = 128;
/// Characters of a note in a status.
const NOTE_CHARACTERS: usize = 512;
/// An agent that is being replaced is back within a minute.
const PATIENCE: Duration = Duration::from_mins(2);
/// From one attempt to the next.
const WAIT: Duration = Duration::from_secs(1);
/// A node that does not answer does not hold up the end.
const RESTORE_LIMIT: Duration = Duration::from_secs(5);

/// What is tuned by.
#[derive(Clone, Debug)]
pub struct Order {
    /// What the manifest asks for.
    pub tcp: Tcp,
    /// What was measured, if anything was.
    pub network: Option<Network>,
    /// Pings behind each figure of loss.
    pub probes: u32,
    /// By whom the settings will be restored: the cluster's UID.
    pub owner: String,
}

/// Tunes all members. `reach` finds their agents, anew for each attempt: settings that were written before are written
/// again, and an agent that was replaced meanwhile is another.
pub async fn apply(
    reach: impl Fn() -> Result<Vec<Remote>, StepFailure> + Send,
    order: &Order,
) -> Result<Tuned, StepFailure> {
    let begun = Instant::now();
    loop {
        let failure = match reach() {
            Ok(remotes) => match attempt(&remotes, order).await {
                Ok(settings) => return Ok(shown(settings)),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        let passing = matches!(failure.reason.as_str(), "AgentLost" | "NoAgent");
        if !passing || begun.elapsed() >= PATIENCE {
            return Err(failure);
        }
        tokio::time::sleep(WAIT).await;
    }
}

async fn attempt(remotes: &[Remote], order: &Order) -> Result<Vec<TcpSetting>, StepFailure> {
    if order.tcp.mode == TcpMode::Apply {
        // What an attempt before this one wrote, perhaps that of an operator who is gone, would be taken for what was there
        // before, and never be put back.
        let silent = tune::restore(remotes, &order.owner, &mut [], RESTORE_LIMIT).await;
        if let Some(silent) = silent.into_iter().next() {
            return Err(StepFailure::new("NoAgent", silent.message));
        }
    }
    let facts = tune::describe(remotes).await?;
    let plan = tune::plan(remotes, &facts, order.network.as_ref(), order.probes, &order.tcp);
    tune::tune(remotes, &plan, &order.owner, order.tcp.mode != TcpMode::Apply).await
}

fn shown(settings: Vec<TcpSetting>) -> Tuned {
    let changed = settings.iter().filter(|setting| setting.before != setting.applied).count();
    let settings = settings.into_iter().take(SHOWN).map(|setting| TunedSetting {
        host: setting.host,
        key: cut(&setting.key, VALUE_CHARACTERS),
        before: cut(&setting.before, VALUE_CHARACTERS),
        applied: cut(&setting.applied, VALUE_CHARACTERS),
        restored: setting.restored,
        dry_run: setting.dry_run,
        note: Some(cut(&setting.note, NOTE_CHARACTERS)).filter(|note| !note.is_empty()),
    });
    Tuned { settings: settings.collect(), changed: u32::try_from(changed).unwrap_or(u32::MAX) }
}

/// Restores what was written on the members that are still there. `shown` is what the status says of it.
pub async fn restore(remotes: &[Remote], owner: &str, shown: &[TunedSetting]) -> Released {
    let mut settings = tune::published(shown);
    for silent in tune::restore(remotes, owner, &mut settings, RESTORE_LIMIT).await {
        // A namespace that is gone took its settings with it; an agent that is gone restores when it is back.
        tracing::warn!(reason = silent.reason, "{}", silent.message);
    }
    let restored: BTreeSet<(String, String)> = settings
        .into_iter()
        .filter(|setting| setting.restored)
        .map(|setting| (setting.host, setting.key))
        .collect();
    Released { restored }
}

/// What a map says of the network, in the report's words; None where it has no matrices.
pub fn network(map: &NetworkMap) -> Option<Network> {
    let matrices = map.status.as_ref()?.matrices.clone()?;
    Some(Network {
        hosts: matrices.hosts,
        rtt_milliseconds: matrices.rtt_milliseconds,
        jitter_milliseconds: matrices.jitter_milliseconds,
        loss_percent: matrices.loss_percent,
        bandwidth_mbps: matrices.bandwidth_mbps,
        ..Network::default()
    })
}

fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}
