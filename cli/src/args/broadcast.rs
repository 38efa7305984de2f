//! The command lines of `plan` and `simulate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, builder::PossibleValue};
use gridcast_core::broadcast::simulate::Fault;

/// Who broadcasts to whom on which network.
#[derive(Debug, Args)]
pub(crate) struct Broadcast {
    /// The network: hosts, switches and links (YAML or JSON; docs/topology.md)
    pub(crate) topology: PathBuf,
    /// The host that has the data
    #[arg(long, value_name = "HOST")]
    pub(crate) source: String,
    /// The hosts that want it. Default: all others
    #[arg(long, value_name = "HOST,HOST", value_delimiter = ',')]
    pub(crate) to: Option<Vec<String>>,
    /// How hosts pass on: from their disks, or as fast as the slowest behind them takes it. Ours are the same in both
    #[arg(long, value_enum, default_value_t = Relay::Asynchronous)]
    pub(crate) relay: Relay,
    /// Most trees of the strategy stable; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) max_trees: u32,
    /// Seed of the strategy random
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) broadcast: Broadcast,
    /// How trees are made
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Strategy::Stable)]
    pub(crate) strategy: Strategy,
    /// Leave out hosts that cannot be reached, and name them
    #[arg(long)]
    pub(crate) partial: bool,
    /// What to print on standard output
    #[arg(short, long, value_enum, default_value_t = PlanOutput::Table)]
    pub(crate) output: PlanOutput,
}

#[derive(Debug, Args)]
pub(crate) struct Simulate {
    #[command(flatten)]
    pub(crate) broadcast: Broadcast,
    /// Size of the data: a number with B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, as in 10GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) size: u64,
    /// Size of a chunk, which a host passes on when it has all of it. Default: 2048 chunks, whatever their size
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) chunk: Option<u64>,
    /// How trees are made; `all` compares them
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Strategies::One(Strategy::Stable))]
    pub(crate) strategy: Strategies,
    /// What goes wrong, and when: 'at=3s kill=B'; may be repeated
    ///
    /// kill=HOST, back=HOST, join=HOST, full=HOST (its disk), spoil=HOST (three chunks to it), slow=HOST,MBPS, cut=A,B,
    /// heal=A,B and link=A,B,MBPS, where A and B are the ends of a link.
    #[arg(long, value_name = "FAULT")]
    pub(crate) fault: Vec<Fault>,
    /// What to print on standard output
    #[arg(short, long, value_enum, default_value_t = SimulateOutput::Table)]
    pub(crate) output: SimulateOutput,
}

/// How trees are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strategy {
    /// Every host at its own best
    Stable,
    /// The source sends to each host itself
    Flat,
    /// A chain in random order
    Random,
    /// A chain in the order of a depth-first walk
    DepthFirst,
    /// Depth-first trees, each to all hosts
    Fpfr,
    /// The host with the largest bandwidth next, behind the latest of equal parents
    Dijkstra,
    /// The same, behind the earliest of equal parents
    DijkstraEarliest,
    /// A chain by descending bandwidth
    Chain,
}

/// One way of making trees, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strategies {
    One(Strategy),
    All,
}

impl ValueEnum for Strategies {
    fn value_variants<'a>() -> &'a [Self] {
        use Strategy::{Chain, DepthFirst, Dijkstra, DijkstraEarliest, Flat, Fpfr, Random, Stable};
        const {
            &[
                Self::One(Stable),
                Self::One(Flat),
                Self::One(Random),
                Self::One(DepthFirst),
                Self::One(Fpfr),
                Self::One(Dijkstra),
                Self::One(DijkstraEarliest),
                Self::One(Chain),
                Self::All,
            ]
        }
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::One(strategy) => strategy.to_possible_value(),
            Self::All => Some(PossibleValue::new("all").help("Each of them")),
        }
    }
}

/// How hosts pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Relay {
    /// From disk
    Asynchronous,
    /// With backpressure
    Synchronous,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlanOutput {
    /// For people
    Table,
    /// The plan itself; docs/plan.schema.json
    Json,
    /// A graph for Graphviz
    Dot,
    /// A drawing of the network and the trees
    Svg,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SimulateOutput {
    /// For people
    Table,
    /// What came of it; docs/simulate.schema.json
    Json,
    /// A chart: when each host has everything
    Svg,
}

/// Bytes: a number and its unit.
fn size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 10] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("B", 1),
        ("", 1),
    ];
    let unit = UNITS.into_iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?.trim_end(), bytes)));
    let plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = unit.filter(|(digits, _)| plain(digits));
    let bytes = number.and_then(|(digits, bytes)| Some(digits.parse::<f64>().ok()? * bytes as f64));
    match bytes {
        Some(bytes) if (1.0..=MOST_SIMULATED).contains(&bytes) => Ok(bytes.round() as u64),
        Some(_) => Err("give a size from 1B to 1000TB".to_owned()),
        None => Err("write it as 10GiB, 500MB or 1.5TB".to_owned()),
    }
}

/// Largest dataset that is simulated, bytes.
const MOST_SIMULATED: f64 = 1e15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("1", 1),
            ("10GiB", 10 << 30),
            ("10 GiB", 10 << 30),
            ("1.5TB", 1_500_000_000_000),
            ("0.5KiB", 512),
            ("7kB", 7000),
            ("1000TB", 1_000_000_000_000_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "GiB", "0", "-1GiB", "1e3", "10G", "10 gib", "nanB", "inf", "1..2MB", "1025TiB", "0.1B", "."]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
