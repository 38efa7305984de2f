//! Whatever a topology file says: it is refused with a line, or every strategy has a plan on it that holds what it promises.
//!
//! The last byte chooses the strategy and the options.

use gridcast_core::broadcast::{
    plan::{Options, PlanError, Relay, Strategy, plan},
    topology::Host,
    validity,
};

#[path = "../../cli/src/topology.rs"]
#[allow(dead_code, reason = "files are for the command line")]
mod reader;

/// Most vertices that are planned on here: more of them find nothing more.
const VERTICES: usize = 24;

pub(crate) fn check(data: &[u8]) {
    let Some((&choice, data)) = data.split_last() else { return };
    let Ok(text) = std::str::from_utf8(data) else { return };
    let network = match reader::parse(text) {
        Ok(declared) => declared.topology,
        Err(why) => return assert!(!why.contains('\n') && why.len() < 2000, "{why}"),
    };
    if network.validate_for_planning().is_err() || network.vertex_names().len() > VERTICES {
        return;
    }
    let options = Options {
        strategy: match usize::from(choice) % (Strategy::BASELINES.len() + 1) {
            0 => Strategy::Stable,
            other => Strategy::BASELINES[other - 1],
        },
        relay: if choice & 8 == 0 { Relay::Asynchronous } else { Relay::Synchronous },
        max_trees: u32::from(choice >> 4),
        partial: true,
        ..Options::default()
    };
    let names: Vec<String> = network.hosts.iter().map(|host| Host::name(host).to_owned()).collect();
    match plan(&network, &names[0], &names[1..], &options) {
        Ok(plan) => {
            assert_eq!(validity::check(&network, &plan), Ok(()));
            let starved = |rate: f64, bound: f64| bound > 0.0 && rate <= 0.0;
            let mut arrivals = plan.destinations.iter();
            let starved = arrivals.find(|arrival| starved(arrival.rate_mbps, arrival.bound_mbps));
            assert!(options.strategy != Strategy::Stable || starved.is_none(), "{starved:?} gets nothing");
        }
        Err(error) => assert!(!matches!(error, PlanError::Topology(_)), "{error}"),
    }
}
