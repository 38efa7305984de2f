//! `gridcast local experiment`: figures that others have published, made again.

use std::{fmt::Write as _, io::Write as _};

use gridcast_core::broadcast::{
    paper::{self, Comparison, Condition},
    plan::{Options, Relay, Strategy},
};

use crate::{
    args::{BroadcastSim, Experiment, ReportOutput},
    failure::Failure,
};

/// Runs one of them.
pub(crate) fn command(experiment: &Experiment) -> Result<(), Failure> {
    match experiment {
        Experiment::BroadcastSim(arguments) => broadcast_sim(arguments),
    }
}

fn broadcast_sim(arguments: &BroadcastSim) -> Result<(), Failure> {
    let BroadcastSim { destinations, draws, seed, output } = *arguments;
    let compared = Condition::ALL.map(|condition| {
        paper::compare(condition, destinations.into(), draws.into(), seed)
            .map_err(|error| Failure::failed(error.reason(), error.to_string()))
    });
    let compared = compared.into_iter().collect::<Result<Vec<_>, _>>()?;
    let text = match output {
        ReportOutput::Table => table(&compared, draws),
        ReportOutput::Json => serde_json::to_string_pretty(&compared)
            .map_err(|error| Failure::failed("JsonFailed", error.to_string()))?,
    };
    // A closed terminal changes nothing.
    let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
    Ok(())
}

/// Columns of the table of one relay model: two lines of heading, and what is below.
const COLUMNS: [(&str, &str, Strategy); 6] = [
    ("depth-", "first", Strategy::DepthFirst),
    ("", "fpfr", Strategy::Fpfr),
    ("dijkstra", "latest", Strategy::Dijkstra),
    ("dijkstra", "earliest", Strategy::DijkstraEarliest),
    ("", "chain", Strategy::Chain),
    ("", "random", Strategy::Random),
];

fn table(compared: &[Comparison], draws: u16) -> String {
    let destinations = compared.first().map_or(0, |comparison| comparison.destinations);
    let hosts: usize = paper::CLUSTERS.iter().sum();
    let mut text = format!(
        "{destinations} destinations among {hosts} hosts: the sum of their rates, times that of `flat`; mean of {draws} draws\n"
    );
    for (title, relay) in
        [("relays from disk", Relay::Asynchronous), ("relays in lockstep", Relay::Synchronous)]
    {
        heading(&mut text, title);
        for comparison in compared {
            row(&mut text, comparison, relay);
        }
    }
    text + &beside_the_paper(compared)
}

fn heading(text: &mut String, title: &str) {
    let trees = format!("{} trees", Options::default().max_trees);
    let ours = [("", "bound"), ("stable,", "no limit"), ("stable,", trees.as_str())];
    let columns = || ours.into_iter().chain(COLUMNS.map(|(above, below, _)| (above, below)));
    let line = |of: fn((&str, &str)) -> String| columns().map(of).collect::<String>();
    let above = line(|(above, _)| format!("{above:>9}"));
    let below = line(|(_, below)| format!("{below:>9}"));
    let _ = write!(text, "\n{:19}{}\n{title:19}{}\n", "", above.trim_end(), below);
}

fn row(text: &mut String, comparison: &Comparison, relay: Relay) {
    let _ = write!(text, "{:19}", comparison.condition.title());
    let over_flat = |strategy, relay, max_trees| {
        comparison.of(strategy, relay, max_trees).map(|reached| reached.over_flat)
    };
    let unlimited = comparison.of(Strategy::Stable, Relay::Asynchronous, 0);
    let bound = unlimited.map(|reached| reached.over_flat / reached.of_bound);
    // Trees of one rate are the same in both models.
    let ours = [0, Options::default().max_trees]
        .map(|max_trees| over_flat(Strategy::Stable, Relay::Asynchronous, max_trees));
    let others = COLUMNS.map(|(.., strategy)| over_flat(strategy, relay, 0));
    for figure in std::iter::once(bound).chain(ours).chain(others) {
        let figure = figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.2}"));
        let _ = write!(text, "{figure:>9}");
    }
    text.push('\n');
}

/// What the paper says of its method with 100 destinations, and ours over the same.
fn beside_the_paper(compared: &[Comparison]) -> String {
    let mut text =
        "\nours without a limit, beside what the paper says of its own with 100 destinations\n".to_owned();
    for comparison in compared {
        let Some(ours) = comparison.of(Strategy::Stable, Relay::Asynchronous, 0) else { continue };
        let over = |strategy| {
            [Relay::Synchronous, Relay::Asynchronous].map(|relay| {
                let other = comparison.of(strategy, relay, 0);
                other.map_or(f64::NAN, |other| ours.over_flat / other.over_flat)
            })
        };
        let title = comparison.condition.title();
        let published = comparison.published;
        if let Some(paper) = published.over_flat {
            let _ = writeln!(text, "{title:19}{:.1} times flat; paper {paper:.1}", ours.over_flat);
        }
        for (name, strategy, paper) in [
            ("depth-first", Strategy::DepthFirst, published.over_depth_first),
            ("dijkstra", Strategy::Dijkstra, published.over_dijkstra),
        ] {
            let (Some(paper), [lockstep, disk]) = (paper, over(strategy)) else { continue };
            let _ = writeln!(
                text,
                "{title:19}{lockstep:.2} times {name} in lockstep, {disk:.2} from disk; paper {paper:.2}"
            );
        }
    }
    text
}
