//! Was the network measured, is it good enough, and is TCP tuned for it?

use gridcast_control::measure::violations;
use gridcast_core::report::{Network, Rows};
use gridcast_crds::{
    NetworkMap, conditions,
    virtual_cluster::{
        OnViolation, ProbePolicy, Require, TcpMode,
        status::{NetworkSummary, Spread},
    },
};

use super::{
    Action, Part, Step,
    draft::{Draft, shortened},
    nodes::{Nodes, count},
    standing::{Standing, standing},
};
use crate::virtual_cluster::{
    observed::{Trouble, Work},
    steps,
};

/// Sentences of the worst pairs, and their bytes, that a status keeps.
const WORST: (usize, usize) = (20, 512);

/// What a step of the preparation comes to.
pub(super) enum Progress {
    /// There is nothing to wait for.
    Done,
    /// It goes on.
    Going(String),
    /// Something is in the way that may go by itself.
    Hindered(Trouble),
    /// Something is in the way that someone has to change.
    Stuck(Trouble),
    /// The cluster has failed.
    Failed(Trouble),
}

/// A single node has no network between its nodes.
pub(super) fn is_measured(draft: &Draft<'_>, nodes: &Nodes<'_>) -> bool {
    draft.spec().probe().policy == ProbePolicy::BeforeRun && nodes.total() > 1
}

pub(super) fn measure(draft: &mut Draft<'_>, nodes: &Nodes<'_>, open: bool) -> Progress {
    if !is_measured(draft, nodes) || draft.holds(conditions::MEASURED) {
        return Progress::Done;
    }
    let progress = if open { measuring(draft) } else { Progress::Going("waits for the nodes".into()) };
    match &progress {
        Progress::Done => {}
        Progress::Going(message) => draft.set(conditions::MEASURED, false, "Pending", message),
        Progress::Hindered(trouble) | Progress::Stuck(trouble) | Progress::Failed(trouble) => {
            draft.set(conditions::MEASURED, false, &trouble.reason, &trouble.message);
        }
    }
    progress
}

fn measuring(draft: &mut Draft<'_>) -> Progress {
    let Some(map) = &draft.observed.network_map else {
        draft.write(&Part::NetworkMap, Action::ApplyNetworkMap);
        return match draft.refusal(&Part::NetworkMap) {
            Some(refused) => Progress::Hindered(refused),
            None => Progress::Going("the network between the nodes is about to be measured".into()),
        };
    };
    if map.metadata.deletion_timestamp.is_some() {
        return Progress::Going("the NetworkMap of before is being deleted".into());
    }
    let said = map.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let observed = map.status.as_ref().and_then(|status| status.observed_generation);
    match standing(said, observed, map.metadata.generation) {
        Standing::Ready => judged(draft, map),
        Standing::Going(Some(told)) => Progress::Going(told.message),
        Standing::Going(None) => Progress::Going("the network between the nodes is being measured".into()),
        Standing::Stalled(trouble) | Standing::Failed(trouble) => Progress::Stuck(trouble),
    }
}

fn judged(draft: &mut Draft<'_>, map: &NetworkMap) -> Progress {
    let network = steps::tune::network(map).map(|mut network| {
        network.name_worst();
        network
    });
    let hosts = network.as_ref().map_or(draft.observed.members.len(), |network| network.hosts.len());
    draft.status.network = Some(summary(map, network.as_ref(), hosts));
    let found = draft
        .spec()
        .require()
        .zip(network.as_ref())
        .map(|(require, network)| (require.on_violation, violated(require, network)));
    let trouble = match found {
        Some((on_violation, Some(trouble))) => Some((on_violation, trouble)),
        _ => None,
    };
    if let Some((OnViolation::Fail, trouble)) = trouble {
        return Progress::Failed(trouble);
    }
    let (reason, message) = match trouble {
        Some((_, warning)) => {
            (warning.reason, format!("measured between {hosts} nodes; {}", warning.message))
        }
        None => ("Measured".to_owned(), format!("measured between {hosts} nodes")),
    };
    draft.set(conditions::MEASURED, true, &reason, &message);
    draft.reached(|timeline| &mut timeline.measured, draft.now);
    Progress::Done
}

fn violated(require: &Require, network: &Network) -> Option<Trouble> {
    let found = violations(require, network);
    let first = found.first()?;
    let text = match found.len() {
        1 => first.clone(),
        more => format!("{first}; and {} more", more - 1),
    };
    Some(Trouble::new("NetworkBelowRequirement", text))
}

fn summary(map: &NetworkMap, network: Option<&Network>, hosts: usize) -> NetworkSummary {
    // Those of the largest payload, as the worst pairs are.
    let largest = |matrices: &std::collections::BTreeMap<String, Rows>| {
        let size = matrices.keys().max_by_key(|size| size.parse::<u64>().unwrap_or(0))?;
        spread(matrices.get(size)?)
    };
    NetworkSummary {
        hosts: count(hosts),
        rtt_milliseconds: network.and_then(|network| largest(&network.rtt_milliseconds)),
        jitter_milliseconds: network.and_then(|network| largest(&network.jitter_milliseconds)),
        bandwidth_mbps: network.and_then(|network| spread(&network.bandwidth_mbps)),
        worst: worst(map, network),
        map_name: map.metadata.name.clone(),
    }
}

fn worst(map: &NetworkMap, network: Option<&Network>) -> Vec<String> {
    let of_pairs = network.into_iter().flat_map(|network| &network.worst).map(|pair| {
        let (quantity, unit) = match pair.quantity.as_str() {
            "rttMilliseconds" => ("round trip", "ms"),
            "jitterMilliseconds" => ("jitter", "ms"),
            "lossPercent" => ("loss", "%"),
            _ => ("bandwidth", "Mbit/s"),
        };
        format!("{quantity} from {} to {}: {:.3} {unit}", pair.from, pair.to, pair.value)
    });
    let anomalies = map.status.iter().flat_map(|status| &status.anomalies).cloned();
    of_pairs.chain(anomalies).take(WORST.0).map(|sentence| shortened(&sentence, WORST.1)).collect()
}

fn spread(rows: &Rows) -> Option<Spread> {
    let mut values: Vec<f64> =
        rows.iter().flatten().filter_map(|value| *value).filter(|v| v.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (first, last) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    };
    Some(Spread { min: first, median, max: last })
}

/// Settings are of the nodes' own namespaces, so they are in force as long as these very nodes run.
pub(super) fn tune(draft: &mut Draft<'_>, nodes: &Nodes<'_>, open: bool, measured: bool) -> Progress {
    let tcp = draft.spec().tcp();
    if tcp.mode == TcpMode::Off || nodes.total() == 0 {
        return Progress::Done;
    }
    let Some(membership) = nodes.membership.clone().filter(|_| open && measured) else {
        if !open || !draft.holds(conditions::TUNED) {
            draft.set(
                conditions::TUNED,
                false,
                "Pending",
                "waits for the nodes and what is measured between them",
            );
        }
        return Progress::Going("TCP is not tuned yet".into());
    };
    let step = Step::Tune { membership, hosts: nodes.hosts.clone(), map: draft.observed.network_map.clone() };
    match &draft.observed.operations.tune {
        Work::Absent if draft.holds(conditions::TUNED) => Progress::Done,
        Work::Absent => {
            draft.begin(step);
            draft.set(conditions::TUNED, false, "Tuning", "TCP settings are being planned and written");
            Progress::Going("TCP is being tuned".into())
        }
        Work::Running(_) => Progress::Going("TCP is being tuned".into()),
        Work::Failed(trouble) => {
            draft.set(conditions::TUNED, false, &trouble.reason, &trouble.message);
            draft.retry(step);
            Progress::Hindered(trouble.clone())
        }
        Work::Done(tuned) => {
            let word = if tcp.mode == TcpMode::DryRun { "would be changed" } else { "changed" };
            let assumed = match tcp.profile {
                None => {
                    "; nothing is assumed of how the program communicates (network.tcp.profile)".to_owned()
                }
                Some(profile) => format!("; profile {profile:?}"),
            };
            let message = format!("{} settings {word} on {} nodes{assumed}", tuned.changed, nodes.total());
            if !draft.holds(conditions::TUNED) {
                draft.status.tcp.clone_from(&tuned.settings);
            }
            draft.set(
                conditions::TUNED,
                true,
                if tcp.mode == TcpMode::DryRun { "DryRun" } else { "Tuned" },
                &message,
            );
            draft.reached(|timeline| &mut timeline.tuned, draft.now);
            Progress::Done
        }
    }
}
