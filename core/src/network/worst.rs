//! Which pairs should be looked at first?

use std::collections::BTreeMap;

use crate::report::{Network, Rows, WorstPair};

/// The worst pair of each quantity: the longest and the most jittery round trip of the largest payload, the highest loss
/// of any payload (where there is loss at all), the lowest bandwidth. Ties go to the first in the order of rows.
pub fn worst_pairs(network: &Network) -> Vec<WorstPair> {
    let largest = |matrices: &BTreeMap<String, Rows>| -> Option<Rows> {
        let size = matrices.keys().max_by_key(|size| (size.parse::<u64>().unwrap_or(0), (*size).clone()))?;
        matrices.get(size).cloned()
    };
    let highest = |best: f64, value: f64| value > best;
    let lowest = |best: f64, value: f64| value < best;
    let mut worst = Vec::new();
    let mut add = |quantity: &str, rows: Option<Rows>, worse: &dyn Fn(f64, f64) -> bool| {
        worst.extend(rows.and_then(|rows| extreme(network, quantity, &rows, worse)));
    };
    add("rttMilliseconds", largest(&network.rtt_milliseconds), &highest);
    add("jitterMilliseconds", largest(&network.jitter_milliseconds), &highest);
    let losses = network
        .loss_percent
        .values()
        .filter_map(|rows| extreme(network, "lossPercent", rows, &highest))
        .filter(|pair| pair.value > 0.0);
    let loss = losses.reduce(|a, b| if b.value > a.value { b } else { a });
    add("bandwidthMbps", Some(network.bandwidth_mbps.clone()), &lowest);
    let at = worst.len().min(2);
    worst.splice(at..at, loss);
    worst
}

fn extreme(
    network: &Network,
    quantity: &str,
    rows: &Rows,
    worse: &dyn Fn(f64, f64) -> bool,
) -> Option<WorstPair> {
    let mut found: Option<(usize, usize, f64)> = None;
    for (destination, row) in rows.iter().enumerate() {
        for (source, value) in row.iter().enumerate() {
            if let Some(value) = value
                && found.is_none_or(|(_, _, best)| worse(best, *value))
            {
                found = Some((destination, source, *value));
            }
        }
    }
    let (destination, source, value) = found?;
    Some(WorstPair {
        quantity: quantity.to_owned(),
        from: network.hosts.get(source)?.clone(),
        to: network.hosts.get(destination)?.clone(),
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        let rows = |a, b| vec![vec![None, Some(a)], vec![Some(b), None]];
        Network {
            hosts: vec!["a".to_owned(), "b".to_owned()],
            rtt_milliseconds: [("64".to_owned(), rows(9.0, 9.0)), ("50000".to_owned(), rows(1.0, 2.0))]
                .into(),
            jitter_milliseconds: [("64".to_owned(), rows(0.1, 0.1))].into(),
            loss_percent: [("64".to_owned(), rows(0.0, 0.0)), ("50000".to_owned(), rows(10.0, 0.0))].into(),
            bandwidth_mbps: rows(100.0, 90.0),
            ..Network::default()
        }
    }

    #[test]
    fn each_quantity_names_its_pair() {
        let worst = worst_pairs(&network());
        let told: Vec<String> =
            worst.iter().map(|w| format!("{} {}>{} {}", w.quantity, w.from, w.to, w.value)).collect();
        assert_eq!(
            told,
            [
                "rttMilliseconds a>b 2",
                "jitterMilliseconds b>a 0.1",
                "lossPercent b>a 10",
                "bandwidthMbps a>b 90"
            ]
        );
    }

    #[test]
    fn no_loss_and_no_measurement_name_nobody() {
        let mut network = network();
        network.loss_percent.clear();
        network.bandwidth_mbps = vec![vec![None, None], vec![None, None]];
        assert_eq!(worst_pairs(&network).len(), 2);
        assert!(worst_pairs(&Network::default()).is_empty());
    }
}
