//! What was measured between one host and its peers.

use super::Inputs;

/// The path between one host and one peer, by direction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path {
    pub peer: String,
    pub rtt_milliseconds: f64,
    /// Mbit/s from the peer to the host.
    pub inward_mbps: Option<f64>,
    /// Mbit/s from the host to the peer.
    pub outward_mbps: Option<f64>,
    /// Fraction lost, the worse direction, where enough probes were lost to mean something.
    pub loss: Option<f64>,
}

/// Lost probes that say more than chance: with fewer, one stray packet would choose the congestion control.
const LOST_PROBES: f64 = 3.0;

/// The paths of one host whose round-trip time is known.
pub(super) fn paths(inputs: &Inputs<'_>, host: usize) -> Vec<Path> {
    let cell = |rows: &crate::report::Rows, destination: usize, source: usize| -> Option<f64> {
        rows.get(destination)?.get(source).copied()?.filter(|value| value.is_finite() && *value > 0.0)
    };
    let both = |rows, peer| (cell(rows, host, peer), cell(rows, peer, host));
    (0..inputs.hosts.len())
        .filter(|peer| *peer != host)
        .filter_map(|peer| {
            let rtt = match both(inputs.rtt_milliseconds, peer) {
                (Some(a), Some(b)) => a.max(b),
                (a, b) => a.or(b)?,
            };
            let (inward_mbps, outward_mbps) = both(inputs.bandwidth_mbps, peer);
            let (lost_in, lost_out) = both(inputs.loss_percent, peer);
            let loss = lost_in.unwrap_or(0.0).max(lost_out.unwrap_or(0.0)) / 100.0;
            let loss = (loss * f64::from(inputs.probes) >= LOST_PROBES).then_some(loss);
            let peer = inputs.hosts[peer].name.clone();
            Some(Path { peer, rtt_milliseconds: rtt, inward_mbps, outward_mbps, loss })
        })
        .collect()
}

/// Bandwidth-delay product, bytes.
pub(super) fn product_bytes(mbps: f64, rtt_milliseconds: f64) -> f64 {
    mbps * 1e6 / 8.0 * rtt_milliseconds / 1e3
}
