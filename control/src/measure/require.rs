//! Does the network reach what is demanded of it?

use gridcast_core::report::{Network, Rows};
use gridcast_crds::virtual_cluster::Require;

/// What of `require` the network does not reach, one sentence each.
pub fn violations(require: &Require, network: &Network) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(most) = require.max_jitter_milliseconds {
        for (payload, rows) in &network.jitter_milliseconds {
            found.extend(each(network, rows, |v| {
                (v > most).then(|| {
                    format!("jitter {v:.3} ms at {payload} bytes is above maxJitterMilliseconds {most}")
                })
            }));
        }
    }
    if let Some(least) = require.min_bandwidth_mbps {
        found.extend(each(network, &network.bandwidth_mbps, |v| {
            (v < least).then(|| format!("{v:.1} Mbit/s is below minBandwidthMbps {least}"))
        }));
    }
    found
}

/// What is wrong with each value, the pair in front.
fn each(network: &Network, rows: &Rows, wrong: impl Fn(f64) -> Option<String>) -> Vec<String> {
    let mut list = Vec::new();
    for (to, row) in rows.iter().enumerate() {
        for (from, value) in row.iter().enumerate() {
            let text = value.and_then(&wrong);
            list.extend(text.map(|text| format!("{} to {}: {text}", network.hosts[from], network.hosts[to])));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use gridcast_crds::virtual_cluster::OnViolation;

    use super::*;

    #[test]
    fn a_violation_names_the_pair_and_both_figures() {
        let network = Network {
            hosts: vec!["a".into(), "b".into()],
            bandwidth_mbps: vec![vec![None, Some(90.0)], vec![Some(500.0), None]],
            ..Network::default()
        };
        let require = Require {
            max_jitter_milliseconds: None,
            min_bandwidth_mbps: Some(100.0),
            on_violation: OnViolation::Fail,
        };
        assert_eq!(violations(&require, &network), ["b to a: 90.0 Mbit/s is below minBandwidthMbps 100"]);
    }
}
