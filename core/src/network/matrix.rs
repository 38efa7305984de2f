//! A quantity between all pairs of hosts: rows are destinations, columns sources, the diagonal is blank.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::report::Rows;

/// The corner of the table: what rows and columns are.
const CORNER: &str = r"destination\source";
/// Most hosts that a table from outside may have.
const MOST_HOSTS: usize = 4096;

/// A square matrix with the names of its hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Matrix {
    hosts: Vec<String>,
    rows: Rows,
}

/// Why a table cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MatrixError {
    #[error("the first line is not `{CORNER},HOST,HOST…` with 1 to {MOST_HOSTS} hosts")]
    Header,
    #[error(
        "line {line}: expected the row of {expected:?}, found {found:?}: rows come in the order of columns"
    )]
    Row { line: usize, expected: String, found: String },
    #[error("line {line}: {found} values for {expected} hosts")]
    Width { line: usize, found: usize, expected: usize },
    #[error("line {line}: {value:?} is not a number")]
    Value { line: usize, value: String },
    #[error("{found} rows for {expected} hosts")]
    Height { found: usize, expected: usize },
}

impl Matrix {
    /// Nothing measured yet.
    pub fn new(hosts: Vec<String>) -> Self {
        let rows = vec![vec![None; hosts.len()]; hosts.len()];
        Self { hosts, rows }
    }

    /// Names, in the order of rows and columns.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// `[destination][source]`.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// For the report.
    pub fn into_rows(self) -> Rows {
        self.rows
    }

    /// Sets one value. The diagonal, indices outside, and what is not a finite number stay blank.
    pub fn set(&mut self, destination: usize, source: usize, value: f64) {
        if destination != source
            && value.is_finite()
            && let Some(cell) = self.rows.get_mut(destination).and_then(|row| row.get_mut(source))
        {
            *cell = Some(value);
        }
    }

    /// One value.
    pub fn get(&self, destination: usize, source: usize) -> Option<f64> {
        *self.rows.get(destination)?.get(source)?
    }

    /// An aligned table for people, with this many decimals.
    pub fn to_text(&self, decimals: usize) -> String {
        let blank = |destination, source| if destination == source { "" } else { "-" };
        let cells: Vec<Vec<String>> = (0..self.hosts.len())
            .map(|d| {
                (0..self.hosts.len())
                    .map(|s| {
                        self.get(d, s).map_or_else(|| blank(d, s).to_owned(), |v| format!("{v:.decimals$}"))
                    })
                    .collect()
            })
            .collect();
        let first = self.hosts.iter().map(|host| host.chars().count()).chain([CORNER.len()]).max();
        let first = first.unwrap_or_default();
        let mut text = format!("{CORNER:first$}");
        let widths: Vec<usize> = (0..self.hosts.len())
            .map(|s| {
                cells.iter().map(|row| row[s].len()).max().unwrap_or(0).max(self.hosts[s].chars().count())
            })
            .collect();
        for (host, width) in self.hosts.iter().zip(&widths) {
            let _ = write!(text, "  {host:>width$}");
        }
        text.push('\n');
        for (host, row) in self.hosts.iter().zip(&cells) {
            let mut line = format!("{host:first$}");
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "  {cell:>width$}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// Comma-separated, as the published Grid'5000 tables: `destination\source,A,B` and a row per destination.
    pub fn to_csv(&self) -> String {
        let names: Vec<String> = self.hosts.iter().map(|host| quoted(host)).collect();
        let mut csv = format!("{CORNER},{}\n", names.join(","));
        for (name, row) in names.iter().zip(&self.rows) {
            let cells: Vec<String> =
                row.iter().map(|cell| cell.map(|v| shortest(v).to_string()).unwrap_or_default()).collect();
            let _ = writeln!(csv, "{name},{}", cells.join(","));
        }
        csv
    }

    /// `{"hosts": […], "rows": [[null, 0.21], …]}`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({"hosts": self.hosts, "rows": self.rows})
    }

    /// Reads what [`Matrix::to_csv`] writes (names without quotes).
    pub fn from_csv(csv: &str) -> Result<Self, MatrixError> {
        let mut lines = (1..).zip(csv.lines()).filter(|(_, line)| !line.trim().is_empty());
        let (_, header) = lines.next().ok_or(MatrixError::Header)?;
        let mut names = header.split(',').map(|name| name.trim().to_owned());
        let hosts: Vec<String> =
            names.next().filter(|corner| corner == CORNER).map(|_| names.collect()).unwrap_or_default();
        if !(1..=MOST_HOSTS).contains(&hosts.len()) {
            return Err(MatrixError::Header);
        }
        let mut matrix = Self::new(hosts);
        let mut found = 0;
        for (line, text) in lines {
            let cells: Vec<&str> = text.split(',').map(str::trim).collect();
            let expected = matrix.hosts.get(found).cloned().unwrap_or_default();
            if cells[0] != expected {
                return Err(MatrixError::Row { line, expected, found: cells[0].chars().take(64).collect() });
            }
            if cells.len() - 1 != matrix.hosts.len() {
                let expected = matrix.hosts.len();
                return Err(MatrixError::Width { line, found: cells.len() - 1, expected });
            }
            for (source, cell) in cells[1..].iter().enumerate().filter(|(_, cell)| !cell.is_empty()) {
                let value: f64 = cell
                    .parse()
                    .ok()
                    .filter(|v: &f64| v.is_finite())
                    .ok_or_else(|| MatrixError::Value { line, value: cell.chars().take(64).collect() })?;
                matrix.set(found, source, value);
            }
            found += 1;
        }
        if found != matrix.hosts.len() {
            return Err(MatrixError::Height { found, expected: matrix.hosts.len() });
        }
        Ok(matrix)
    }
}

/// Three decimals at most: microseconds of a time in ms, kbit/s of a rate in Mbit/s.
fn shortest(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn quoted(name: &str) -> String {
    if name.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matrix() -> Matrix {
        let mut matrix = Matrix::new(["a", "node-1", "b"].map(str::to_owned).to_vec());
        matrix.set(0, 1, 0.25);
        matrix.set(1, 0, 12.345_678);
        matrix.set(2, 2, 1.0);
        matrix.set(2, 9, 1.0);
        matrix.set(2, 0, f64::NAN);
        matrix
    }

    #[test]
    fn three_forms() {
        assert_eq!(
            matrix().to_text(2),
            "destination\\source      a  node-1  b\n\
             a                            0.25  -\n\
             node-1              12.35          -\n\
             b                       -       -\n"
        );
        assert_eq!(matrix().to_csv(), "destination\\source,a,node-1,b\na,,0.25,\nnode-1,12.346,,\nb,,,\n");
        assert_eq!(matrix().to_json()["rows"][0], serde_json::json!([null, 0.25, null]));
    }

    #[test]
    fn a_published_table_is_read() {
        let csv = "destination\\source,Bordeaux,Grenoble\nBordeaux,,16.1\nGrenoble,16.04,\n";
        let matrix = Matrix::from_csv(csv).unwrap();
        assert_eq!(matrix.get(0, 1), Some(16.1));
        assert_eq!(matrix.to_csv(), csv);
    }

    #[test]
    fn errors_name_the_line() {
        let error = |csv: &str| Matrix::from_csv(csv).unwrap_err().to_string();
        assert!(error("").contains("first line"));
        assert!(error("x,a\n").contains("first line"));
        assert!(error("destination\\source,a,b\nb,,1\na,1,\n").starts_with("line 2"));
        assert!(error("destination\\source,a,b\na,,x\nb,1,\n").contains("\"x\" is not a number"));
        assert!(error("destination\\source,a,b\na,,NaN\nb,1,\n").contains("is not a number"));
        assert!(error("destination\\source,a,b\na,\n").contains("1 values for 2"));
        assert!(error("destination\\source,a,b\na,,1\n").contains("1 rows for 2"));
        assert!(error("destination\\source,a\na,\nb,\n").starts_with("line 3"));
    }

    #[test]
    fn a_name_cannot_add_a_column() {
        let csv = Matrix::new(vec!["a,b\n\"c".to_owned()]).to_csv();
        assert!(csv.starts_with("destination\\source,\"a,b\n\"\"c\"\n"));
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_read(text in "(destination.source,)?[ab,\n0-9.]{0,40}") {
            let _ = Matrix::from_csv(&text);
        }

        #[test]
        fn csv_comes_back(values in proptest::collection::vec(proptest::option::of(0_u32..10_000_000), 9)) {
            let mut matrix = Matrix::new(["x", "y", "z"].map(str::to_owned).to_vec());
            for (index, value) in values.iter().enumerate() {
                if let Some(value) = value { matrix.set(index / 3, index % 3, f64::from(*value) / 1000.0); }
            }
            prop_assert_eq!(Matrix::from_csv(&matrix.to_csv()).unwrap(), matrix);
        }
    }
}
