//! Congestion control and slow start after idle, by policy.

use std::fmt::Write as _;

use super::path::Path;
use super::{HostFacts, Inputs, Profile};

/// A round trip below this is the same site.
const SITE_MILLISECONDS: f64 = 1.0;
/// Payload of a segment at MTU 1500.
const SEGMENT_BITS: f64 = 1448.0 * 8.0;
/// Loss that keeps a loss-based control below this share of the path calls for one that looks at rates.
const LOSS_LIMITED: f64 = 0.7;

/// What the policy wants, most wanted first, and why.
struct Policy {
    order: &'static [&'static str],
    reason: String,
}

/// The congestion control for a host that has this one now.
pub(super) fn choose(
    inputs: &Inputs<'_>,
    host: &HostFacts,
    paths: &[Path],
    before: &str,
) -> (String, String) {
    let Some(policy) = policy(inputs.profile, paths) else {
        return (before.to_owned(), "left alone: no round-trip time was measured on this host".to_owned());
    };
    let mut passed_over = String::new();
    for name in policy.order {
        if *name == before {
            return (before.to_owned(), format!("{}{passed_over}; in force already", policy.reason));
        }
        if !contains(&host.available_congestion_controls, name) {
            let _ = write!(passed_over, "; {name} is not available in this kernel");
        } else if !host.allowed_congestion_controls.is_empty()
            && !contains(&host.allowed_congestion_controls, name)
        {
            // Writing into a String cannot fail.
            let _ = write!(
                passed_over,
                "; {name} is refused to network namespaces here (net.ipv4.tcp_allowed_congestion_control lacks it; \
                 the machine's administrator can add it, or set it by route: ip route ... congctl {name})"
            );
        } else {
            return ((*name).to_owned(), format!("{}{passed_over}", policy.reason));
        }
    }
    (before.to_owned(), format!("{}{passed_over}; {before} stays", policy.reason))
}

fn contains(names: &[String], name: &str) -> bool {
    names.iter().any(|each| each == name)
}

/// None where nothing was measured.
fn policy(profile: Profile, paths: &[Path]) -> Option<Policy> {
    const LOSS_BASED: &[&str] = &["cubic", "reno"];
    const RATE_BASED: &[&str] = &["bbr", "cubic", "reno"];
    let farthest = paths.iter().max_by(|a, b| a.rtt_milliseconds.total_cmp(&b.rtt_milliseconds))?;
    let rtt = farthest.rtt_milliseconds;
    if rtt < SITE_MILLISECONDS {
        let reason = format!(
            "same site (at most {rtt:.2} ms, {}): cubic; bbr costs many-to-one exchanges and its neighbours more than \
             it brings below {SITE_MILLISECONDS} ms",
            farthest.peer
        );
        return Some(Policy { order: LOSS_BASED, reason });
    }
    if profile == Profile::Synchronous {
        let reason = format!(
            "synchronous many-to-one exchanges over {rtt:.1} ms: cubic; bbr retransmits far more there"
        );
        return Some(Policy { order: LOSS_BASED, reason });
    }
    let limited = paths.iter().filter_map(loss_limit).min_by(|a, b| a.1.total_cmp(&b.1));
    Some(match limited {
        Some((path, allowed, carried)) => Policy {
            order: RATE_BASED,
            reason: format!(
                "{:.2} % of the probes to {} are lost, which keeps a loss-based control at {allowed:.0} of \
                 {carried:.0} Mbit/s: bbr",
                path.loss.unwrap_or(0.0) * 100.0,
                path.peer
            ),
        },
        None => Policy {
            order: LOSS_BASED,
            reason: format!("up to {rtt:.1} ms ({}) without loss that would limit it: cubic", farthest.peer),
        },
    })
}

/// A path on which loss holds a loss-based control back: the path, what loss allows and what was measured, Mbit/s.
/// Mathis et al. 1997 for Reno and RFC 9438 for CUBIC, the better of the two.
fn loss_limit(path: &Path) -> Option<(&Path, f64, f64)> {
    let (loss, mbps) = (path.loss?, path.outward_mbps?);
    let rtt = path.rtt_milliseconds / 1e3;
    let segments = (1.22 / loss.sqrt()).max(1.054 * (rtt / loss).powf(0.75));
    let allowed = SEGMENT_BITS / rtt * segments / 1e6;
    (allowed < LOSS_LIMITED * mbps).then_some((path, allowed, mbps))
}

/// The value wanted for slow start after idle and why; None where the profile says nothing about it.
pub(super) fn slow_start_after_idle(
    profile: Profile,
    control: Option<&str>,
) -> Option<(&'static str, &'static str)> {
    match profile {
        Profile::Asynchronous | Profile::Staggered if control == Some("bbr") => None,
        Profile::Asynchronous => {
            Some(("0", "profile Asynchronous: pairs that exchange after pauses go on at full speed"))
        }
        Profile::Staggered => {
            Some(("0", "profile Staggered: senders take turns, so none meets another's burst after a pause"))
        }
        Profile::Synchronous => Some((
            "1",
            "profile Synchronous: all send at once after a pause, slow start keeps them from losing",
        )),
        Profile::Bulk => Some(("1", "profile Bulk: long transfers have no pauses to gain from")),
        Profile::Auto => None,
    }
}
