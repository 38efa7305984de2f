//! The report as one page: no script, nothing from elsewhere, light and dark.

use gridcast_core::report::{Dataset, Network, Outcome, PairRtt, Report, Run, TcpSetting};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::view::{self, Kind};
use super::{heatmap, phases};

/// Most rows of a table.
const MOST_ROWS: usize = 1000;

/// The page. All text of the report is escaped.
pub(super) fn page(report: &Report) -> String {
    let outcome = view::outcome(report);
    let class = match report.outcome {
        Outcome::Complete => "badge complete",
        Outcome::Failed => "badge failed",
        Outcome::Interrupted | Outcome::Unfinished => "badge interrupted",
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Nothing is fetched, whatever a report might hold.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                title { (report.name) ": " (outcome) }
                link rel="icon" href="data:,";
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                main {
                    header {
                        h1 { (report.name) }
                        span class=(class) { (outcome) }
                        span.soft { "exit code " (report.exit_code) }
                    }
                    @if !report.reason.is_empty() || !report.message.is_empty() {
                        p.why { strong { (report.reason) } ": " (report.message) }
                    }
                    (figures(report))
                    section {
                        h2 { "Timeline" }
                        div.wide { (phases::picture(&report.timeline)) }
                    }
                    @if let Some(network) = &report.network { (self::network(network)) }
                    @if let Some(settings) = &report.tcp { (tcp(settings)) }
                    @for dataset in report.data.iter().flatten() { (data(dataset)) }
                    @if let Some(run) = &report.run { (placement(run)) }
                    footer { "gridcast " (env!("CARGO_PKG_VERSION")) ". Every figure of this page is in the report's JSON." }
                }
            }
        }
    }
    .into_string()
}

/// The figures that say most.
fn figures(report: &Report) -> Markup {
    let figure = |value: String, what: String| html! { div.figure { b { (value) } span { (what) } } };
    let end =
        report.timeline.finished.or_else(|| view::phases(&report.timeline).last().map(|phase| phase.to));
    let ranks: usize =
        report.run.iter().flat_map(|run| &run.placement).map(|placed| placed.ranks.len()).sum();
    html! {
        div.figures {
            @if let Some(end) = end {
                (figure(view::seconds(end - report.timeline.created), "from start to finish".to_owned()))
            }
            @if let Some(network) = &report.network {
                @for quantity in view::quantities(network).iter().filter(|q| q.kind == Kind::Bandwidth) {
                    @if let Some(summary) = quantity.summary() {
                        (figure(format!("{:.1} Mbit/s", summary.least), format!("slowest pair: {}", pair(network, summary.worst))))
                    }
                }
                @for quantity in view::quantities(network).iter().filter(|q| q.kind == Kind::RoundTrip).take(1) {
                    @if let Some(summary) = quantity.summary() {
                        (figure(format!("{:.3} ms", summary.greatest), format!("longest round trip: {}", pair(network, summary.worst))))
                    }
                }
            }
            @for dataset in report.data.iter().flatten().take(2) {
                @if let Some(percent) = dataset.percent_of_bound() {
                    (figure(format!("{percent:.1} %"), format!("of the network's bound, staging {}", dataset.name)))
                }
            }
            @if let Some(run) = &report.run {
                (figure(ranks.to_string(), format!("ranks seen on {} nodes", run.placement.len())))
            }
        }
    }
}

fn pair(network: &Network, (destination, source): (usize, usize)) -> String {
    format!("{} \u{2192} {}", view::host(network, source), view::host(network, destination))
}

fn network(network: &Network) -> Markup {
    let quantities = view::quantities(network);
    let pictured = |quantity: &&view::Quantity<'_>| {
        quantity.kind != Kind::Loss || quantity.summary().is_some_and(|summary| summary.greatest > 0.0)
    };
    html! {
        section {
            h2 { "Network" }
            p.soft {
                (network.hosts.len()) " hosts. UDP round trips, averages of all probes, stamped by "
                @match network.timestamps.as_str() {
                    "kernel" => "the kernel",
                    "user" => "the program",
                    other => (other),
                }
                "; TCP goodput as received."
            }
            div.wide { table {
                tr { th { "quantity" } th.n { "least" } th.n { "median" } th.n { "greatest" } th { "worst pair" } }
                @for quantity in &quantities {
                    @if let Some(summary) = quantity.summary() {
                        @let decimals = quantity.decimals();
                        tr {
                            td { (quantity.title) ", " (quantity.unit) }
                            td.n { (format!("{:.decimals$}", summary.least)) }
                            td.n { (format!("{:.decimals$}", summary.median)) }
                            td.n { (format!("{:.decimals$}", summary.greatest)) }
                            td {
                                @if quantity.kind == Kind::Loss && summary.greatest <= 0.0 { span.soft { "none lost" } }
                                @else { (pair(network, summary.worst)) }
                            }
                        }
                    }
                }
            } }
            @for note in &network.notes { p.remark { (note) } }
            @if network.hosts.len() > heatmap::MOST_HOSTS {
                p.soft { "The matrices of " (network.hosts.len()) " hosts are in the report's JSON: too large for a picture." }
            } @else {
                div.maps {
                    // What people look at first comes first.
                    @for kind in [Kind::Bandwidth, Kind::RoundTrip, Kind::Jitter, Kind::Loss] {
                        @for quantity in quantities.iter().filter(|quantity| quantity.kind == kind).filter(pictured) {
                            (heatmap::picture(network, quantity))
                        }
                    }
                }
            }
            @for (size, pairs) in &network.rtt_summary { (pings(size, pairs)) }
        }
    }
}

fn pings(size: &str, pairs: &[PairRtt]) -> Markup {
    html! {
        details {
            summary { "Round trips of " (view::grouped(size)) " bytes as ping prints them" }
            div.wide { table {
                tr {
                    th { "from" } th { "to" } th.n { "sent" } th.n { "received" } th.n { "min ms" } th.n { "avg ms" }
                    th.n { "max ms" } th.n { "mdev ms" }
                }
                @for pair in pairs.iter().take(MOST_ROWS) {
                    tr {
                        td { (pair.from) } td { (pair.to) } td.n { (pair.sent) } td.n { (pair.received) }
                        @for value in [pair.min, pair.avg, pair.max, pair.mdev] {
                            td.n { @if pair.received > 0 { (format!("{value:.3}")) } @else { "-" } }
                        }
                    }
                }
            } }
            @if pairs.len() > MOST_ROWS { p.soft { "and " (pairs.len() - MOST_ROWS) " pairs more" } }
        }
    }
}

fn tcp(settings: &[TcpSetting]) -> Markup {
    let hosts: std::collections::BTreeSet<&str> = settings.iter().map(|s| s.host.as_str()).collect();
    html! {
        section {
            h2 { "TCP settings" }
            div.wide { table {
                tr { th { "setting" } th { "on" } th { "before" } th { "applied" } th { "afterwards" } th { "why" } }
                @for group in view::tcp_groups(settings).iter().take(MOST_ROWS) {
                    tr {
                        td.id { (group.setting.key) }
                        td { (view::hosts_named(&group.hosts, hosts.len())) }
                        td.value { (group.setting.before) }
                        @if group.changed() {
                            td.value { (group.setting.applied) }
                            td { (group.fate()) }
                        } @else {
                            td.soft { "unchanged" }
                            td {}
                        }
                        td.note { (group.setting.note) }
                    }
                }
            } }
        }
    }
}

fn data(dataset: &Dataset) -> Markup {
    let kind = view::bound_kind(dataset.bound_kind);
    let greatest = dataset.nodes.iter().fold(0.0_f64, |a, node| a.max(node.rate_mbps));
    html! {
        section {
            h2 { "Data: " (dataset.name) }
            p {
                (view::size(dataset.size_bytes)) " in " (dataset.files) @if dataset.files == 1 { " file" } @else { " files" }
                " by strategy " (dataset.strategy) " (" (dataset.trees) @if dataset.trees == 1 { " tree" } @else { " trees" }
                ") in " (view::seconds(dataset.seconds)) "; " (view::size(dataset.source_bytes_read)) " read from the source."
            }
            @if let Some(percent) = dataset.percent_of_bound() {
                p {
                    strong { (format!("{:.1}", dataset.aggregate_mbps)) " Mbit/s" } " in all, "
                    (format!("{percent:.1}")) " % of the bound of " (format!("{:.1}", dataset.bound_mbps))
                    " Mbit/s of the " (kind) " network."
                }
                div.bar { i style=(format!("width:{:.1}%", percent.clamp(0.0, 100.0))) {} }
            }
            div.wide { table {
                tr { th { "node" } th.n { "Mbit/s" } th style="width:40%" {} th { "verified" } }
                @for node in dataset.nodes.iter().take(MOST_ROWS) {
                    tr {
                        td { (node.name) }
                        td.n { (format!("{:.1}", node.rate_mbps)) }
                        td { div.bar style="margin:7px 0 0" {
                            i style=(format!("width:{:.1}%", if greatest > 0.0 { (100.0 * node.rate_mbps / greatest).clamp(0.0, 100.0) } else { 0.0 })) {}
                        } }
                        td { @if node.verified { "yes" } @else { strong { "no" } } }
                    }
                }
            } }
            @if dataset.nodes.len() > MOST_ROWS { p.soft { "and " (dataset.nodes.len() - MOST_ROWS) " nodes more" } }
            p.soft style="margin:12px 0 0" { "BLAKE3 of the manifest: " code { (dataset.digest) } }
        }
    }
}

fn placement(run: &Run) -> Markup {
    html! {
        section {
            h2 { "Run" }
            p { (view::restarts(run.restarts)) "exit code " strong { (run.exit_code) } ". Where its ranks were seen:" }
            div.wide { table {
                tr { th { "node" } th { "ranks" } }
                @for placed in run.placement.iter().take(MOST_ROWS) {
                    tr { td { (placed.host) } td { (view::ranks(&placed.ranks)) } }
                }
            } }
            @if run.placement.is_empty() { p { "No rank was seen." } }
            @if run.placement.len() > MOST_ROWS { p.soft { "and " (run.placement.len() - MOST_ROWS) " nodes more" } }
            @if !run.log_tail.is_empty() {
                details open { summary { "The end of what it wrote" } pre.log { (run.log_tail) } }
            }
        }
    }
}
