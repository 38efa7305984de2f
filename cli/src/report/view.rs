//! What there is to show of a report, and in which words: the same on the terminal and on the page.

use std::fmt::Write as _;

use gridcast_core::report::{BoundKind, Network, Outcome, Report, Rows, TcpSetting, Timeline};

/// One quantity between all pairs.
pub(super) struct Quantity<'a> {
    /// `Round trip, 64 bytes`
    pub(super) title: String,
    /// `ms`
    pub(super) unit: &'static str,
    pub(super) rows: &'a Rows,
    /// Long round trips are worse, high bandwidths better.
    pub(super) high_is_worse: bool,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    RoundTrip,
    Jitter,
    Loss,
    Bandwidth,
}

/// All quantities of a network, payloads in ascending order; those without a value are left out.
pub(super) fn quantities(network: &Network) -> Vec<Quantity<'_>> {
    let by_payload = [
        ("Round trip", "ms", &network.rtt_milliseconds, Kind::RoundTrip),
        ("Jitter (mdev)", "ms", &network.jitter_milliseconds, Kind::Jitter),
        ("Loss", "%", &network.loss_percent, Kind::Loss),
    ];
    let mut quantities = Vec::new();
    for (title, unit, matrices, kind) in by_payload {
        let mut sizes: Vec<_> = matrices.iter().collect();
        sizes.sort_by_key(|(size, _)| size.parse::<u64>().unwrap_or(u64::MAX));
        quantities.extend(sizes.into_iter().map(|(size, rows)| Quantity {
            title: format!("{title}, {} bytes", grouped(size)),
            unit,
            rows,
            high_is_worse: true,
            kind,
        }));
    }
    quantities.push(Quantity {
        title: "TCP bandwidth".to_owned(),
        unit: "Mbit/s",
        rows: &network.bandwidth_mbps,
        high_is_worse: false,
        kind: Kind::Bandwidth,
    });
    quantities.retain(|quantity| quantity.rows.iter().flatten().any(Option::is_some));
    quantities
}

/// Least, median, greatest, and the worst pair as (destination, source).
pub(super) struct Summary {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) greatest: f64,
    pub(super) worst: (usize, usize),
}

impl Quantity<'_> {
    /// None without a value.
    pub(super) fn summary(&self) -> Option<Summary> {
        let mut cells: Vec<(f64, usize, usize)> = Vec::new();
        for (destination, row) in self.rows.iter().enumerate() {
            for (source, value) in row.iter().enumerate() {
                cells.extend(value.map(|value| (value, destination, source)));
            }
        }
        // A stable sort: of equal pairs the first in the order of rows is named.
        cells.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (first, last) = (cells.first()?, cells.last()?);
        let worst = if self.high_is_worse {
            cells.iter().find(|cell| cell.0 >= last.0).unwrap_or(last)
        } else {
            first
        };
        Some(Summary {
            least: first.0,
            median: cells[cells.len() / 2].0,
            greatest: last.0,
            worst: (worst.1, worst.2),
        })
    }

    /// Decimals that all values of this quantity are shown with.
    pub(super) fn decimals(&self) -> usize {
        let greatest = self.rows.iter().flatten().flatten().fold(0.0_f64, |a, b| a.max(*b));
        match greatest {
            g if g >= 1000.0 => 0,
            g if g >= 100.0 => 1,
            g if g >= 10.0 => 2,
            _ => 3,
        }
    }
}

/// The name of a host of a matrix.
pub(super) fn host(network: &Network, index: usize) -> &str {
    network.hosts.get(index).map_or("?", String::as_str)
}

/// The stretch of time that led to a state.
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) from: f64,
    pub(super) to: f64,
}

/// The phases in the order in which they happened, which differs between the local run and Kubernetes.
pub(super) fn phases(timeline: &Timeline) -> Vec<Phase> {
    let Timeline { created, scheduled, ready, measured, tuned, staged, launched, first_rank, finished } =
        timeline;
    let mut states: Vec<(&'static str, f64)> = [
        ("hosts chosen", scheduled),
        ("nodes ready", ready),
        ("network measured", measured),
        ("TCP tuned", tuned),
        ("data staged", staged),
        ("program launched", launched),
        ("first rank seen", first_rank),
        ("finished", finished),
    ]
    .into_iter()
    .filter_map(|(name, at)| Some((name, at.filter(|at| at.is_finite())?)))
    .collect();
    states.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut from = *created;
    states
        .into_iter()
        .map(|(name, to)| {
            let phase = Phase { name, from, to };
            from = to;
            phase
        })
        .collect()
}

/// Settings that are the same on several hosts, shown once.
pub(super) struct TcpGroup<'a> {
    pub(super) hosts: Vec<&'a str>,
    /// The first host's.
    pub(super) setting: &'a TcpSetting,
    /// On how many of them the old value is in force again.
    pub(super) restored: usize,
}

impl TcpGroup<'_> {
    /// Whether there is a second value to show.
    pub(super) fn changed(&self) -> bool {
        self.setting.before != self.setting.applied
    }

    /// What became of the value from before.
    pub(super) fn fate(&self) -> String {
        match self.restored {
            _ if self.setting.dry_run => "dry run, not written".to_owned(),
            all if all == self.hosts.len() => "restored".to_owned(),
            0 => "not restored".to_owned(),
            some => format!("restored on {some} of {}", self.hosts.len()),
        }
    }
}

/// Groups settings by key and values, in the order of first appearance.
pub(super) fn tcp_groups(settings: &[TcpSetting]) -> Vec<TcpGroup<'_>> {
    let mut groups: Vec<TcpGroup<'_>> = Vec::new();
    for setting in settings {
        let same = |group: &&mut TcpGroup<'_>| {
            let other = group.setting;
            (&other.key, &other.before, &other.applied, other.dry_run)
                == (&setting.key, &setting.before, &setting.applied, setting.dry_run)
        };
        if let Some(group) = groups.iter_mut().find(same) {
            group.hosts.push(&setting.host);
            group.restored += usize::from(setting.restored);
        } else {
            let restored = usize::from(setting.restored);
            groups.push(TcpGroup { hosts: vec![&setting.host], setting, restored });
        }
    }
    // Sorted by key, so that what differs between hosts stands together; stable, so otherwise as reported.
    groups.sort_by(|a, b| a.setting.key.cmp(&b.setting.key));
    groups
}

/// `ring-node-0`, or `4 nodes`.
pub(super) fn hosts_named(hosts: &[&str], all: usize) -> String {
    match hosts {
        [] => String::new(),
        [one] => (*one).to_owned(),
        many if many.len() == all => format!("all {all} nodes"),
        many if many.len() <= 3 => many.join(", "),
        many => format!("{} nodes ({}, ...)", many.len(), many[0]),
    }
}

/// `0-3, 7`
pub(crate) fn ranks(ranks: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = ranks;
    while let Some(first) = rest.first() {
        let run = rest
            .iter()
            .zip(*first..=u32::MAX)
            .take_while(|(rank, expected)| *rank == expected)
            .count()
            .max(1);
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing into a String cannot fail.
        let _ = match run {
            1 => write!(text, "{comma}{first}"),
            2 => write!(text, "{comma}{first}, {}", rest[1]),
            _ => write!(text, "{comma}{first}-{}", rest[run - 1]),
        };
        rest = &rest[run..];
    }
    text
}

/// `64.0 MiB`
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let exponent = bytes.ilog2() / 10;
    format!("{:.1} {}", bytes as f64 / (1_u64 << (10 * exponent)) as f64, UNITS[exponent as usize - 1])
}

/// `50,000`: digits in groups of three; what is no number stays.
pub(super) fn grouped(number: &str) -> String {
    if number.len() < 5 || !number.bytes().all(|b| b.is_ascii_digit()) {
        return number.to_owned();
    }
    let mut text = String::new();
    for (index, digit) in number.chars().enumerate() {
        if index > 0 && (number.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `0.512 s`, `12.3 s`, `5 min 12 s`
pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 10.0 {
        format!("{seconds:.2} s")
    } else if seconds < 120.0 {
        format!("{seconds:.1} s")
    } else if seconds < 7200.0 {
        format!("{:.0} min {:02.0} s", (seconds / 60.0).floor(), (seconds % 60.0).floor())
    } else {
        format!("{:.0} h {:02.0} min", (seconds / 3600.0).floor(), (seconds % 3600.0 / 60.0).floor())
    }
}

/// What a bound rests on.
pub(super) fn bound_kind(kind: BoundKind) -> &'static str {
    match kind {
        BoundKind::Declared => "declared",
        BoundKind::Measured => "measured",
        BoundKind::Assumed => "assumed",
    }
}

/// `2 restarts, exit code 0`
pub(super) fn restarts(restarts: u32) -> String {
    match restarts {
        0 => String::new(),
        1 => "1 restart, ".to_owned(),
        many => format!("{many} restarts, "),
    }
}

/// How it ended, in one word for people.
pub(super) fn outcome(report: &Report) -> &'static str {
    match report.outcome {
        Outcome::Complete => "Complete",
        Outcome::Failed => "Failed",
        Outcome::Interrupted => "Interrupted",
        Outcome::Unfinished => "Unfinished",
    }
}

/// Text from outside without what a terminal would obey: control characters and marks that turn the direction of text.
pub(super) fn plain(text: &str) -> String {
    let obeyed = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .map(|c| if matches!(c, '\n' | '\t') { ' ' } else { c })
        .map(|c| if obeyed(c) { '\u{fffd}' } else { c })
        .collect()
}
