//! The report for a terminal: at most 110 columns.

use std::fmt::Write as _;

use gridcast_core::report::{Dataset, Network, Report, Run, TcpSetting, Timeline};

use super::view::{self, Kind, plain};

/// Widest line.
const COLUMNS: usize = 110;
/// Most hosts whose matrices are printed.
const MATRIX_HOSTS: usize = 16;
/// Most rows of a list of nodes.
const LISTED: usize = 16;
/// Most lines of a log.
const LOG_LINES: usize = 20;
/// Longest bar of the timeline.
const BAR: f64 = 48.0;

/// The whole report. User text is made harmless to the terminal.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    heading(&mut out, report);
    timeline(&mut out, &report.timeline);
    if let Some(network) = &report.network {
        self::network(&mut out, network);
    }
    if let Some(settings) = &report.tcp {
        tcp(&mut out, settings);
    }
    for dataset in report.data.iter().flatten() {
        data(&mut out, dataset);
    }
    if let Some(run) = &report.run {
        placement(&mut out, run);
    }
    out
}

/// Writes one line to the end of a String, without blanks at its end.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => {{
        let line = format!($($arg)*);
        $out.push_str(line.trim_end());
        $out.push('\n');
    }};
}
pub(crate) use line;

fn heading(out: &mut String, report: &Report) {
    line!(
        out,
        "{}: {}, exit code {}",
        cut(&plain(&report.name), 70),
        view::outcome(report),
        report.exit_code
    );
    if !report.reason.is_empty() || !report.message.is_empty() {
        wrapped(out, "  ", &format!("{}: {}", plain(&report.reason), plain(&report.message)));
    }
}

pub(super) fn timeline(out: &mut String, timeline: &Timeline) {
    let phases = view::phases(timeline);
    let Some(end) = phases.last().map(|phase| phase.to) else { return };
    let whole = (end - timeline.created).max(1e-9);
    line!(out, "\nTIMELINE                  at s     took s");
    line!(out, "  {:18} {:>9.3}", "created", timeline.created);
    for phase in phases {
        let took = phase.to - phase.from;
        let column = |at: f64| ((at - timeline.created) / whole * BAR).round().clamp(0.0, BAR) as usize;
        let (from, to) = (column(phase.from), column(phase.to));
        let bar = if to > from { "#".repeat(to - from) } else { "|".to_owned() };
        line!(out, "  {:18} {:>9.3}  {took:>9.3}  {}{bar}", phase.name, phase.to, " ".repeat(from));
    }
}

/// A summary, and the matrices of clusters that fit.
pub(super) fn network(out: &mut String, network: &Network) {
    summary(out, network);
    if view::quantities(network).iter().any(|quantity| quantity.summary().is_some()) {
        matrices(out, network);
    }
}

fn summary(out: &mut String, network: &Network) {
    line!(
        out,
        "\nNETWORK  {} hosts, probes stamped by {}",
        network.hosts.len(),
        match network.timestamps.as_str() {
            "kernel" => "the kernel".to_owned(),
            "user" => "the program (kernel timestamps were not to be had)".to_owned(),
            other => cut(&plain(other), 60),
        }
    );
    line!(out, "  {:32} {:>9} {:>9} {:>9}  worst pair", "", "least", "median", "greatest");
    for quantity in view::quantities(network) {
        let Some(summary) = quantity.summary() else { continue };
        let decimals = quantity.decimals();
        let [least, median, greatest] =
            [summary.least, summary.median, summary.greatest].map(|value| format!("{value:.decimals$}"));
        let worst = if quantity.kind == Kind::Loss && summary.greatest <= 0.0 {
            "none lost".to_owned()
        } else {
            let (destination, source) = summary.worst;
            format!("{} -> {}", plain(view::host(network, source)), plain(view::host(network, destination)))
        };
        let title = format!("{}, {}", quantity.title, quantity.unit);
        line!(out, "  {title:32} {least:>9} {median:>9} {greatest:>9}  {}", cut(&worst, 43));
    }
    for note in &network.notes {
        wrapped(out, "  note: ", &plain(note));
    }
}

/// The figures people look at first, for clusters that fit.
fn matrices(out: &mut String, network: &Network) {
    let hosts = network.hosts.len();
    if hosts > MATRIX_HOSTS {
        line!(out, "  the matrices of {hosts} hosts are in the report and on the page (--html)");
        return;
    }
    for quantity in view::quantities(network) {
        if !matches!(quantity.kind, Kind::RoundTrip | Kind::Bandwidth) {
            continue;
        }
        let decimals = quantity.decimals();
        let cells: Vec<Vec<String>> = quantity
            .rows
            .iter()
            .map(|row| {
                row.iter().map(|cell| cell.map_or_else(String::new, |v| format!("{v:.decimals$}"))).collect()
            })
            .collect();
        let names: Vec<String> = network.hosts.iter().map(|name| cut(&plain(name), 24)).collect();
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let widest = |column: usize| cells.iter().filter_map(|row| row.get(column)).map(String::len).max();
        let wide = |column: usize| names[column].chars().count().max(widest(column).unwrap_or(0)) + 2;
        let named = 2 + longest + (0..hosts).map(wide).sum::<usize>() <= COLUMNS;
        // Long names do not fit above narrow columns: numbers stand for them, and the rows say whose they are.
        let width = |column: usize| if named { wide(column) } else { widest(column).unwrap_or(0).max(3) + 1 };
        let left = COLUMNS.saturating_sub(2 + (0..hosts).map(width).sum::<usize>());
        let first = if named { longest } else { left.min(longest + 3) };
        line!(out, "\n  {} in {}: rows receive, columns send", quantity.title, quantity.unit);
        let mut header = format!("  {:first$}", "");
        for (column, name) in names.iter().enumerate() {
            let name = if named { name.clone() } else { column.to_string() };
            let _ = write!(header, "{name:>width$}", width = width(column));
        }
        line!(out, "{header}");
        for (row, name) in names.iter().enumerate() {
            let label =
                if named { name.clone() } else { format!("{row:>2} {}", end(name, first.saturating_sub(3))) };
            let mut text = format!("  {label:first$}");
            for (column, cell) in cells.get(row).into_iter().flatten().take(hosts).enumerate() {
                let cell = match cell.as_str() {
                    "" if row == column => "",
                    "" => "-",
                    cell => cell,
                };
                let _ = write!(text, "{cell:>width$}", width = width(column));
            }
            line!(out, "{text}");
        }
    }
}

pub(super) fn tcp(out: &mut String, settings: &[TcpSetting]) {
    let hosts: std::collections::BTreeSet<&str> = settings.iter().map(|s| s.host.as_str()).collect();
    line!(out, "\nTCP SETTINGS");
    for group in view::tcp_groups(settings) {
        let setting = group.setting;
        let on = plain(&view::hosts_named(&group.hosts, hosts.len()));
        let values = if group.changed() {
            format!("{} -> {}, {}", plain(&setting.before), plain(&setting.applied), group.fate())
        } else {
            format!("{}, unchanged", plain(&setting.before))
        };
        line!(out, "  {}: {}", cut(&plain(&setting.key), 45), cut(&on, 60));
        wrapped(out, "    ", &values);
        if !setting.note.is_empty() {
            wrapped(out, "    ", &plain(&setting.note));
        }
    }
}

fn data(out: &mut String, dataset: &Dataset) {
    let trees = if dataset.trees == 1 { "1 tree".to_owned() } else { format!("{} trees", dataset.trees) };
    let files = if dataset.files == 1 { "1 file".to_owned() } else { format!("{} files", dataset.files) };
    let told = format!(
        "{}: {} in {files} by {} ({trees}) in {}",
        plain(&dataset.name),
        view::size(dataset.size_bytes),
        plain(&dataset.strategy),
        view::seconds(dataset.seconds)
    );
    line!(out, "\nDATA  {}", cut(&told, COLUMNS - 6));
    let kind = view::bound_kind(dataset.bound_kind);
    let bound = dataset.percent_of_bound().map_or_else(
        || "; the bound is not known".to_owned(),
        |percent| format!(", {percent:.1} % of the {kind} network's bound of {:.1}", dataset.bound_mbps),
    );
    line!(out, "  {:.1} Mbit/s in all{bound}", dataset.aggregate_mbps);
    line!(
        out,
        "  {} read from the source, digest {}",
        view::size(dataset.source_bytes_read),
        cut(&plain(&dataset.digest), 64)
    );
    let mut nodes: Vec<_> = dataset.nodes.iter().collect();
    if nodes.len() > LISTED {
        nodes.sort_by(|a, b| a.verified.cmp(&b.verified).then(a.rate_mbps.total_cmp(&b.rate_mbps)));
    }
    line!(out, "  {:32} {:>9}", "node", "Mbit/s");
    for node in nodes.iter().take(LISTED) {
        let verified = if node.verified { "verified" } else { "NOT VERIFIED" };
        line!(out, "  {:32} {:>9.1}  {verified}", cut(&plain(&node.name), 32), node.rate_mbps);
    }
    if nodes.len() > LISTED {
        line!(out, "  and {} nodes more, each faster", nodes.len() - LISTED);
    }
}

fn placement(out: &mut String, run: &Run) {
    line!(out, "\nRUN  {}exit code {}", view::restarts(run.restarts), run.exit_code);
    line!(out, "  {:32} ranks", "node");
    for placed in run.placement.iter().take(LISTED) {
        line!(out, "  {:32} {}", cut(&plain(&placed.host), 32), cut(&view::ranks(&placed.ranks), 70));
    }
    if run.placement.len() > LISTED {
        line!(out, "  and {} nodes more", run.placement.len() - LISTED);
    }
    if run.placement.is_empty() {
        line!(out, "  no rank was seen");
    }
    log(out, &run.log_tail);
}

/// The end of what a program wrote: its last lines, each cut where the terminal ends.
pub(super) fn log(out: &mut String, tail: &str) {
    let lines: Vec<&str> = tail.lines().collect();
    if lines.is_empty() {
        return;
    }
    line!(out, "\nLOG  the end of what the program and its launcher wrote");
    for text in &lines[lines.len().saturating_sub(LOG_LINES)..] {
        line!(out, "  {}", cut(&plain(text), COLUMNS - 2));
    }
}

/// Text of any length behind a first prefix, further lines indented by as much.
pub(super) fn wrapped(out: &mut String, prefix: &str, text: &str) {
    let indent = " ".repeat(prefix.chars().count());
    let width = COLUMNS - indent.len();
    let mut line = prefix.to_owned();
    let mut used = 0;
    for word in text.split_whitespace() {
        let word: String = cut(word, width);
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            out.push_str(&line);
            out.push('\n');
            line.clone_from(&indent);
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(&word);
        used += length;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// At most this many characters, the last three dots where something is missing.
pub(super) fn cut(text: &str, length: usize) -> String {
    if text.chars().count() <= length {
        return text.to_owned();
    }
    text.chars().take(length.saturating_sub(3)).chain("...".chars()).collect()
}

/// At most this many characters from the end, where the names of hosts differ.
fn end(text: &str, length: usize) -> String {
    let count = text.chars().count();
    if count <= length {
        return text.to_owned();
    }
    "..".chars().take(length).chain(text.chars().skip(count - length.saturating_sub(2))).collect()
}
