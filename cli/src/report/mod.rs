//! What happened in a run, for people and for scripts?
//!
//! ```text
//! view        what there is to show and in which words: shared by the two below
//! table       for a terminal
//! html        one self-contained page, with
//!   heatmap     a matrix as SVG
//!   phases      the timeline as SVG
//! ```

mod heatmap;
mod html;
mod phases;
mod table;
mod view;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use gridcast_core::report::{Network, Report, TcpSetting, Timeline};

use crate::args::{self, Subject};
use crate::failure::{Failure, OrFailed as _};
use crate::{kubernetes, whole};

/// A report of 64 hosts is about 2 MB; what is much larger is no report.
const MOST_BYTES: u64 = 256 << 20;

/// Why a report cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    #[error("cannot read {path}: {source}; give the report.json that `gridcast local run` named")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is larger than {MOST_BYTES} bytes: it is no report")]
    TooLarge { path: PathBuf },
    #[error("{path} is no report: {source}; docs/report.schema.json says what a report holds")]
    Parse { path: PathBuf, source: serde_json::Error },
}

/// Reads a report.
pub(crate) fn read(path: &Path) -> Result<Report, ReportError> {
    let failed = |source| ReportError::Read { path: path.to_owned(), source };
    let mut text = Vec::new();
    File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut text)).map_err(failed)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(ReportError::TooLarge { path: path.to_owned() });
    }
    serde_json::from_slice(&text).map_err(|source| ReportError::Parse { path: path.to_owned(), source })
}

/// The report for a terminal.
pub(crate) fn table(report: &Report) -> String {
    table::render(report)
}

/// Parts of the table for terminals, for who shows a cluster that has not ended.
pub(crate) mod parts {
    pub(crate) use super::table::line;
    use super::{Network, TcpSetting, Timeline, table, view};

    /// The timeline, empty where no state was reached.
    pub(crate) fn timeline(out: &mut String, timeline: &Timeline) {
        table::timeline(out, timeline);
    }

    /// Figures and matrices.
    pub(crate) fn network(out: &mut String, network: &Network) {
        table::network(out, network);
    }

    /// Settings.
    pub(crate) fn tcp(out: &mut String, settings: &[TcpSetting]) {
        table::tcp(out, settings);
    }

    /// The end of a log.
    pub(crate) fn log(out: &mut String, tail: &str) {
        table::log(out, tail);
    }

    /// Text of any length behind a first prefix.
    pub(crate) fn wrapped(out: &mut String, prefix: &str, text: &str) {
        table::wrapped(out, prefix, &view::plain(text));
    }

    /// Text from outside, harmless to a terminal, of at most this many characters.
    pub(crate) fn cut(text: &str, length: usize) -> String {
        table::cut(&view::plain(text), length)
    }

    pub(crate) use view::{ranks, size};
}

/// `gridcast report FILE|NAME [--html OUT.html] [-o table|json]`
pub(crate) fn command(arguments: &args::Report) -> Result<(), Failure> {
    print(arguments, &mut io::stdout().lock())
}

fn print(arguments: &args::Report, out: &mut dyn io::Write) -> Result<(), Failure> {
    let report = match arguments.subject().map_err(Failure::input)? {
        Subject::File(path) => read(&path).map_err(|error| Failure::input(error.to_string()))?,
        Subject::Cluster(name) => kubernetes::report(&name, &arguments.place)?,
    };
    if let Some(path) = &arguments.html {
        let written = whole::write(path, html::page(&report).as_bytes());
        written.or_failed("ReportNotWritten", format!("write {}", path.display()))?;
    }
    let text = match arguments.output {
        args::ReportOutput::Table => table::render(&report),
        args::ReportOutput::Json => json(&report),
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // `gridcast report … | head` is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed("OutputClosed", format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

fn json(report: &Report) -> String {
    // A report holds no map with keys other than strings and no number that is not finite, so this cannot fail; a NaN
    // is written as null.
    serde_json::to_string_pretty(report).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests;
