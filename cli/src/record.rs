//! Writes what a run leaves: the report, and its matrices as CSV beside it.

use std::{collections::BTreeMap, path::Path};

use gridcast_core::{
    network::Matrix,
    report::{Network, Report, Rows},
};

use crate::{
    failure::{Failure, OrFailed as _},
    whole,
};

/// Writes `report` to `path`, and `STEM.QUANTITY.csv` for each matrix into the same directory.
pub(crate) fn write(report: &Report, path: &Path) -> Result<(), Failure> {
    let mut text = serde_json::to_vec_pretty(report).or_failed("ReportFailed", "encode the report")?;
    text.push(b'\n');
    whole::write(path, &text).or_failed("ReportFailed", format!("write {}", path.display()))?;
    if !path.is_file() {
        // A pipe or a device: there is no "beside".
        return Ok(());
    }
    for (quantity, csv) in report.network.iter().flat_map(matrices) {
        let file = path.with_extension(format!("{quantity}.csv"));
        whole::write(&file, csv.as_bytes()).or_failed("ReportFailed", format!("write {}", file.display()))?;
    }
    Ok(())
}

/// Every matrix of the network by the name of its file.
fn matrices(network: &Network) -> Vec<(String, String)> {
    let csv = |rows: &Rows| {
        let mut matrix = Matrix::new(network.hosts.clone());
        for (destination, row) in rows.iter().enumerate() {
            for (source, value) in row.iter().enumerate() {
                if let Some(value) = value {
                    matrix.set(destination, source, *value);
                }
            }
        }
        matrix.to_csv()
    };
    let by_payload = |name: &'static str, all: &BTreeMap<String, Rows>| -> Vec<(String, String)> {
        all.iter().map(|(payload, rows)| (format!("{name}-{payload}"), csv(rows))).collect()
    };
    let mut found = by_payload("rtt-ms", &network.rtt_milliseconds);
    found.extend(by_payload("jitter-ms", &network.jitter_milliseconds));
    found.extend(by_payload("loss-percent", &network.loss_percent));
    if network.bandwidth_mbps.iter().flatten().any(Option::is_some) {
        found.push(("bandwidth-mbps".to_owned(), csv(&network.bandwidth_mbps)));
    }
    found
}
