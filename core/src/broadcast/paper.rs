//! What do all methods reach on the networks that the paper simulated?
//!
//! Takahashi, Saito, Shibata, Taura: "A Stable Broadcast Algorithm", CCGrid 2008: four real clusters of 110, 81, 36 and 4
//! hosts, bandwidths drawn from eight distributions, a source and 10, 50 or 100 destinations drawn anew for each of ten runs;
//! each method's sum of bandwidths is given relative to sending all from the source.
//!
//! The paper does not say how its clusters were wired. Here hosts hang on edge switches of 24 ports, those on one core switch
//! per cluster, and those on one wide-area switch. So orders of magnitude can be compared, and who is ahead of whom; equal
//! figures would be chance.

use serde::Serialize;

use super::plan::{Options, PlanError, Relay, Strategy, plan};
use super::random::Random;
use super::topology::{Host, Link, Topology};

/// Hosts of each cluster.
pub const CLUSTERS: [usize; 4] = [110, 81, 36, 4];
/// Hosts on one edge switch.
const PORTS: usize = 24;

/// From what the bandwidths of links are drawn, in Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// 100 or 1000, each as likely.
    Mixed,
    /// Between 500 and 1000.
    Uniform500,
    /// Between 100 and 1000.
    Uniform100,
    /// Between 100 and 1000 among switches; 1000 for hosts.
    Trunks,
    /// As `Mixed`, drawn for each direction.
    MixedAsymmetric,
    /// As `Uniform500`, drawn for each direction.
    Uniform500Asymmetric,
    /// As `Uniform100`, drawn for each direction.
    Uniform100Asymmetric,
    /// As `Trunks`, drawn for each direction.
    TrunksAsymmetric,
}

/// What the paper says of its own method with 100 destinations; of the other conditions it only says that it was best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// Times the sum of `Flat`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_flat: Option<f64>,
    /// Times the sum of `DepthFirst`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_depth_first: Option<f64>,
    /// Times the sum of `Dijkstra`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_dijkstra: Option<f64>,
}

impl Condition {
    /// All of them, the symmetric ones first.
    pub const ALL: [Self; 8] = [
        Self::Mixed,
        Self::Uniform500,
        Self::Uniform100,
        Self::Trunks,
        Self::MixedAsymmetric,
        Self::Uniform500Asymmetric,
        Self::Uniform100Asymmetric,
        Self::TrunksAsymmetric,
    ];

    /// What it draws, for a table: at most 18 letters.
    pub fn title(self) -> &'static str {
        match self {
            Self::Mixed => "100 or 1000",
            Self::Uniform500 => "500-1000",
            Self::Uniform100 => "100-1000",
            Self::Trunks => "trunks 100-1000",
            Self::MixedAsymmetric => "100 or 1000, asym.",
            Self::Uniform500Asymmetric => "500-1000, asym.",
            Self::Uniform100Asymmetric => "100-1000, asym.",
            Self::TrunksAsymmetric => "trunks, asymmetric",
        }
    }

    /// Whether each link is as wide both ways.
    pub fn is_symmetric(self) -> bool {
        matches!(self, Self::Mixed | Self::Uniform500 | Self::Uniform100 | Self::Trunks)
    }

    /// What the paper says.
    pub fn published(self) -> Published {
        match self {
            Self::Mixed => {
                Published { over_flat: Some(40.0), over_depth_first: Some(3.0), ..Published::default() }
            }
            Self::Trunks => {
                Published { over_flat: Some(36.0), over_depth_first: Some(1.2), ..Published::default() }
            }
            Self::Uniform100Asymmetric => Published { over_dijkstra: Some(0.98), ..Published::default() },
            _ => Published::default(),
        }
    }

    /// There and back. `trunk` is a link between switches.
    fn link(self, trunk: bool, random: &mut Random) -> (f64, f64) {
        let mut draw = || match self {
            Self::Mixed | Self::MixedAsymmetric => [100.0, 1000.0][random.below(2)],
            Self::Uniform500 | Self::Uniform500Asymmetric => random.between(500.0, 1000.0),
            Self::Uniform100 | Self::Uniform100Asymmetric => random.between(100.0, 1000.0),
            Self::Trunks | Self::TrunksAsymmetric if trunk => random.between(100.0, 1000.0),
            Self::Trunks | Self::TrunksAsymmetric => 1000.0,
        };
        let there = draw();
        (there, if self.is_symmetric() { there } else { draw() })
    }
}

/// One broadcast on one network.
#[derive(Clone, Debug, PartialEq)]
pub struct Draw {
    /// 231 hosts, of which some take part; the others are leaves and carry nothing.
    pub topology: Topology,
    /// Where the data is.
    pub source: String,
    /// Who receives it.
    pub destinations: Vec<String>,
}

/// Bandwidths, source and destinations from a seed; at most all other hosts are destinations.
pub fn draw(condition: Condition, destinations: usize, seed: u64) -> Draw {
    let mut random = Random::new(seed);
    let mut topology = Topology { switches: vec!["wan".to_owned()], ..Topology::default() };
    for (cluster, &hosts) in CLUSTERS.iter().enumerate() {
        let core = format!("c{cluster}");
        join(&mut topology, "wan", &core, condition.link(true, &mut random));
        topology.switches.push(core.clone());
        for host in 0..hosts {
            let edge = format!("{core}e{}", host / PORTS);
            if host % PORTS == 0 {
                join(&mut topology, &core, &edge, condition.link(true, &mut random));
                topology.switches.push(edge.clone());
            }
            let name = format!("{core}h{host:03}");
            join(&mut topology, &edge, &name, condition.link(false, &mut random));
            topology.hosts.push(Host::Name(name));
        }
    }
    let mut names: Vec<String> = topology.hosts.iter().map(|host| host.name().to_owned()).collect();
    random.shuffle(&mut names);
    let source = names.remove(0);
    names.truncate(destinations);
    Draw { topology, source, destinations: names }
}

fn join(topology: &mut Topology, a: &str, b: &str, (there, back): (f64, f64)) {
    topology.links.push(Link {
        back_mbps: (back.to_bits() != there.to_bits()).then_some(back),
        ..Link::new(a, b, there)
    });
}

/// A method as it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Method {
    /// How trees are made.
    pub strategy: Strategy,
    /// How hosts pass on.
    pub relay: Relay,
    /// Most trees; 0 is no limit.
    pub max_trees: u32,
}

impl Method {
    /// Ours without a limit and with the one that is the default, then the others in both relay models.
    pub fn all() -> Vec<Self> {
        let ours = [0, Options::default().max_trees];
        let ours =
            ours.map(|max_trees| Self { strategy: Strategy::Stable, relay: Relay::Asynchronous, max_trees });
        let others = Strategy::BASELINES.into_iter().flat_map(|strategy| {
            // Without relays there is one model.
            let models: &[Relay] = match strategy {
                Strategy::Flat => &[Relay::Asynchronous],
                _ => &[Relay::Synchronous, Relay::Asynchronous],
            };
            models.iter().map(move |&relay| Self { strategy, relay, max_trees: 0 })
        });
        ours.into_iter().chain(others).collect()
    }
}

/// What a method reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reached {
    /// Which one.
    #[serde(flatten)]
    pub method: Method,
    /// The sum over the destinations in each draw, Mbit/s.
    pub aggregate_mbps: Vec<f64>,
    /// Mean of the sums, times that of `Flat`.
    pub over_flat: f64,
    /// Mean of the sums, as a part of that of the bounds.
    pub of_bound: f64,
}

/// All methods on the same draws.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// What bandwidths were drawn from.
    pub condition: Condition,
    /// Number of destinations.
    pub destinations: usize,
    /// The sum of max-flows in each draw, Mbit/s.
    pub bound_mbps: Vec<f64>,
    /// In the order of [`Method::all`].
    pub methods: Vec<Reached>,
    /// What the paper says of 100 destinations.
    pub published: Published,
}

impl Comparison {
    /// What a method reached; none for one that was not compared.
    pub fn of(&self, strategy: Strategy, relay: Relay, max_trees: u32) -> Option<&Reached> {
        self.methods.iter().find(|reached| reached.method == Method { strategy, relay, max_trees })
    }
}

/// Compares all methods on `draws` networks, each with a seed of its own that follows from `seed`.
pub fn compare(
    condition: Condition,
    destinations: usize,
    draws: usize,
    seed: u64,
) -> Result<Comparison, PlanError> {
    compare_some(Method::all(), condition, destinations, draws, seed)
}

/// The same for some methods, `Flat` among them.
fn compare_some(
    methods: Vec<Method>,
    condition: Condition,
    destinations: usize,
    draws: usize,
    seed: u64,
) -> Result<Comparison, PlanError> {
    let mut seeds = Random::new(seed);
    let mut bound_mbps = Vec::with_capacity(draws);
    let mut sums: Vec<Vec<f64>> = vec![Vec::with_capacity(draws); methods.len()];
    for _ in 0..draws {
        let seed = seeds.bits();
        let drawn = draw(condition, destinations, seed);
        let mut bound = 0.0;
        for (method, sums) in methods.iter().zip(&mut sums) {
            let Method { strategy, relay, max_trees } = *method;
            let options = Options { strategy, relay, max_trees, seed, ..Options::default() };
            let plan = plan(&drawn.topology, &drawn.source, &drawn.destinations, &options)?;
            bound = plan.bound_mbps;
            sums.push(plan.aggregate_mbps);
        }
        bound_mbps.push(bound);
    }
    let total = |sums: &[f64]| sums.iter().sum::<f64>();
    let flat = methods.iter().zip(&sums).find(|(method, _)| method.strategy == Strategy::Flat);
    let (flat, bound) = (flat.map_or(0.0, |(_, sums)| total(sums)), total(&bound_mbps));
    let reached = methods.into_iter().zip(sums).map(|(method, aggregate_mbps)| Reached {
        method,
        over_flat: total(&aggregate_mbps) / flat,
        of_bound: total(&aggregate_mbps) / bound,
        aggregate_mbps,
    });
    let methods = reached.collect();
    Ok(Comparison { condition, destinations, bound_mbps, methods, published: condition.published() })
}

#[cfg(test)]
mod tests;
