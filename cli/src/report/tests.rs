use std::fs;

use gridcast_core::network::worst_pairs;
use gridcast_core::report::{Network, Outcome, PlacedRanks, Report, Rows, Timeline};

use super::*;

fn example() -> Report {
    serde_json::from_str(include_str!("../../../core/tests/report.json")).unwrap()
}

/// A report of many hosts, with one slow one and one pair that was not measured.
fn large(hosts: usize) -> Report {
    let rows = |value: &dyn Fn(usize, usize) -> f64| -> Rows {
        (0..hosts)
            .map(|d| (0..hosts).map(|s| (d != s && (d, s) != (2, 1)).then(|| value(d, s))).collect())
            .collect()
    };
    let slow = |d: usize, s: usize| d == 5 || s == 5;
    let mut network = Network {
        hosts: (0..hosts).map(|i| format!("grid-worker-{i}")).collect(),
        rtt_milliseconds: [
            (
                "64".to_owned(),
                rows(&|d, s| if slow(d, s) { 1.1 } else { 0.4 + ((d * 7 + s * 3) % 10) as f64 * 0.01 }),
            ),
            ("50000".to_owned(), rows(&|d, s| if slow(d, s) { 12.5 } else { 4.0 })),
        ]
        .into(),
        bandwidth_mbps: rows(&|d, s| if slow(d, s) { 94.1 } else { 930.0 + (d + s) as f64 % 11.0 }),
        timestamps: "kernel".to_owned(),
        ..Network::default()
    };
    network.worst = worst_pairs(&network);
    Report { network: Some(network), ..example() }
}

fn hostile() -> Report {
    let bad = "</title><script>alert(1)</script>\u{1b}[31m\u{202e}'\"&\n";
    let mut report = example();
    report.name = bad.to_owned();
    report.outcome = Outcome::Failed;
    report.reason = bad.to_owned();
    report.message = bad.repeat(40);
    let network = report.network.as_mut().unwrap();
    network.hosts[1] = bad.to_owned();
    network.timestamps = bad.to_owned();
    network.notes.push(bad.to_owned());
    let setting = &mut report.tcp.as_mut().unwrap()[0];
    (setting.host, setting.key, setting.before, setting.note) =
        (bad.into(), bad.into(), bad.into(), bad.into());
    let dataset = &mut report.data.as_mut().unwrap()[0];
    (dataset.name, dataset.digest, dataset.strategy) = (bad.into(), bad.into(), bad.into());
    dataset.nodes[0].name = bad.to_owned();
    report
        .run
        .as_mut()
        .unwrap()
        .placement
        .push(PlacedRanks { host: bad.to_owned(), ranks: vec![0, u32::MAX] });
    report
}

#[test]
fn the_table_is_as_it_was() {
    insta::assert_snapshot!(table(&example()));
}

#[test]
fn no_line_is_wider_than_a_terminal() {
    for report in [example(), large(8), large(16), large(17), hostile()] {
        for line in table(&report).lines() {
            assert!(line.chars().count() <= 110, "{} columns: {line}", line.chars().count());
        }
    }
}

#[test]
fn sixteen_hosts_are_shown_whole() {
    let text = table(&large(16));
    let header = text.lines().find(|line| line.trim_start().starts_with("0 ")).unwrap();
    assert!(header.trim_end().ends_with("15"), "{header}");
    assert!(text.contains("94.1"));
    assert!(table(&large(17)).contains("are in the report and on the page"));
}

#[test]
fn a_terminal_obeys_nothing_in_it() {
    let text = table(&hostile());
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    assert!(!text.contains('\u{202e}'));
}

#[test]
fn a_browser_obeys_nothing_in_it() {
    let page = html::page(&hostile());
    assert!(!page.contains("<script"));
    assert!(page.contains("&lt;script&gt;"));
    assert_eq!(page.matches("</title>").count(), page.matches("<title>").count());
    assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
}

#[test]
fn the_page_names_what_matters() {
    let page = html::page(&example());
    for text in
        ["ring-node-0 \u{2192} ring-node-3", "95.9 %", "97.5", "data staged", "net.ipv4.tcp_wmem", "Complete"]
    {
        assert!(page.contains(text), "{text} is missing");
    }
    // One picture of the timeline; two payloads' round trips and jitter, and bandwidth.
    assert_eq!(page.matches("<svg").count(), 6);
}

#[test]
fn a_run_that_made_nothing_has_a_page_and_a_table() {
    let report = Report {
        outcome: Outcome::Failed,
        reason: "NoSpace".to_owned(),
        message: "ring-node-2: disk full".to_owned(),
        exit_code: 1,
        name: "ring".to_owned(),
        timeline: Timeline::default(),
        network: None,
        tcp: None,
        data: None,
        run: None,
    };
    assert_eq!(table(&report), "ring: Failed, exit code 1\n  NoSpace: ring-node-2: disk full\n");
    assert!(html::page(&report).contains("ring-node-2: disk full"));
}

#[test]
fn a_thousand_hosts_make_no_huge_page() {
    let page = html::page(&large(70));
    assert!(page.len() < 400_000, "{} bytes", page.len());
    assert!(page.contains("too large for a picture"));
    // The largest that is pictured.
    assert!(html::page(&large(64)).len() < 8_000_000);
}

#[test]
fn matrices_of_another_shape_are_survived() {
    let mut report = example();
    let network = report.network.as_mut().unwrap();
    network.bandwidth_mbps = vec![vec![Some(1.0); 9]; 2];
    network.rtt_milliseconds.insert("64".to_owned(), vec![vec![]]);
    network.hosts.truncate(1);
    let _ = (table(&report), html::page(&report));
    report.network.as_mut().unwrap().hosts.clear();
    let _ = (table(&report), html::page(&report));
}

#[test]
fn a_dry_run_is_said_to_be_one() {
    let mut report = example();
    for setting in report.tcp.as_mut().unwrap() {
        setting.dry_run = true;
    }
    assert!(table(&report).contains("bbr -> cubic, dry run, not written"));
    assert!(html::page(&report).contains("dry run, not written"));
}

#[test]
fn the_page_is_written_and_the_report_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    fs::write(&file, include_str!("../../../core/tests/report.json")).unwrap();
    assert_eq!(read(&file).unwrap(), example());
    let html = folder.path().join("page.html");
    let mut out = Vec::new();
    let what = file.to_str().unwrap().to_owned();
    let place = args::Place::default();
    let arguments = args::Report { what, place, html: Some(html.clone()), output: args::ReportOutput::Json };
    print(&arguments, &mut out).unwrap();
    assert_eq!(serde_json::from_slice::<Report>(&out).unwrap(), example(), "the JSON alone");
    assert!(fs::read_to_string(html).unwrap().starts_with("<!DOCTYPE html>"));
}

#[test]
fn what_is_no_report_is_wrong_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.json");
    let what = path.to_str().unwrap().to_owned();
    let place = args::Place::default();
    let arguments = args::Report { what, place, html: None, output: args::ReportOutput::Json };
    let told = |expected: &str| {
        let failure = command(&arguments).unwrap_err();
        assert_eq!(failure.exit_code(), 2);
        assert!(failure.to_string().contains(expected), "{failure}");
    };
    told("cannot read");
    fs::write(&path, "{\"outcome\": \"Complete\"}").unwrap();
    told("is no report: missing field");
}

/// `GRIDCAST_PAGES=DIR cargo test -p gridcast pages` writes pages to look at.
#[test]
fn pages_to_look_at() {
    if let Some(folder) = std::env::var_os("GRIDCAST_PAGES").map(PathBuf::from) {
        let mut failed = large(32);
        failed.outcome = Outcome::Failed;
        failed.reason = "AgentLost".to_owned();
        failed.message = "grid-worker-5: its agent went away while data was staged".to_owned();
        for (name, report) in [("4", example()), ("12", large(12)), ("32", failed), ("64", large(64))] {
            fs::write(folder.join(format!("{name}.html")), html::page(&report)).unwrap();
        }
    }
}

#[test]
fn the_published_schema_accepts_the_example_and_refuses_others() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/report.schema.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut report: serde_json::Value =
        serde_json::from_str(include_str!("../../../core/tests/report.json")).unwrap();
    if let Some(error) = validator.iter_errors(&report).next() {
        panic!("{error} at {}", error.instance_path());
    }
    report["outcome"] = "Perhaps".into();
    assert!(!validator.is_valid(&report));
}
