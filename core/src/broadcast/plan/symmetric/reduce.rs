//! Which hosts need not take part in the hard work, since they can ride along with others?
//!
//! The exact packing costs more than the square of the number of vertices. Most hosts of real networks can be left out of
//! it and put into its trees afterwards, at no loss:
//!
//! - A switch with one neighbour carries nothing and goes; one with two neighbours becomes a link between them.
//! - A host whose only link leads to another host (or the source) is fed by that one in as many of its trees as it can take.
//! - Of the hosts whose only link leads to one switch the fastest stays. Each of its trees comes through the switch, and on
//!   the way any other may be served first: a hop `u -> switch -> fastest` becomes `u -> switch -> host -> switch ->
//!   fastest`, which uses nothing more but the host's own link, once each way. Repeated, these rules make one link of a
//!   whole tree that hangs on the rest of the network.
//! - Of the hosts with the same two switches at most three stay. Host `i` with links `c1` and `c2` can ride in any tree that
//!   passes the first switch (over its first link) or the second. By Hall's theorem it gets its max-flow `m` if the trees
//!   that pass either carry `m`, those that pass the first carry `m - c2`, and those that pass the second `m - c1`. A host
//!   that stays, with `m'`, `c1'` and `c2'`, is in trees of `m'`, of which at least `m' - c2'` enter through the first. So
//!   those that stay are the hosts with the greatest `m`, the greatest `m - c2` and the greatest `m - c1`.
//!
//! The last rule takes away links on which others may have relied to get from one switch to the other. [`super::pack`] sees
//! that from the max-flows, and has more and more hosts of each pair stay then, those with the widest way across first.
//!
//! Time: linear in links, but for sorting.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::model::Model;
use super::overlay::Overlay;

/// A host that rides along.
#[derive(Clone, Debug)]
pub(super) struct Rider {
    pub(super) host: usize,
    pub(super) rate: i64,
    /// Where it can join a tree; one, or two switches.
    pub(super) anchors: Vec<Anchor>,
}

/// A neighbour of a rider.
#[derive(Clone, Debug)]
pub(super) struct Anchor {
    pub(super) vertex: usize,
    /// Whether the neighbour is the source or a destination and feeds the rider itself.
    pub(super) stores: bool,
    /// Routes from the neighbour to the rider.
    pub(super) inward: Vec<(i64, Vec<usize>)>,
    /// Routes back.
    pub(super) outward: Vec<(i64, Vec<usize>)>,
}

/// Takes riders out of the network of `model`; the last one taken must be put back first. Of the hosts with the same two
/// switches `spare` more stay than must. Whether any of them rides.
pub(super) fn reduce(model: &mut Model, spare: usize) -> (Vec<Rider>, bool) {
    let mut reduction = Reduction { source: model.source, rates: &model.rates, riders: Vec::new() };
    reduction.collapse(&mut model.overlay);
    let paired = reduction.ride_pairs(&mut model.overlay, spare);
    if paired {
        reduction.collapse(&mut model.overlay);
    }
    (reduction.riders, paired)
}

struct Reduction<'a> {
    source: usize,
    rates: &'a [i64],
    riders: Vec<Rider>,
}

impl Reduction<'_> {
    fn stores(&self, vertex: usize) -> bool {
        vertex == self.source || self.rates[vertex] > 0
    }

    /// The first rules, until none applies.
    fn collapse(&mut self, overlay: &mut Overlay) {
        let mut queue: BTreeSet<usize> = (0..overlay.vertices()).collect();
        while let Some(vertex) = queue.pop_first() {
            if vertex == self.source {
                continue;
            }
            let neighbours: Vec<usize> = overlay.leaving(vertex).map(|arc| overlay.head(arc)).collect();
            let removed = match (self.stores(vertex), &neighbours[..]) {
                (true, &[only]) if self.stores(only) => {
                    self.ride(overlay, vertex);
                    true
                }
                (true, _) => {
                    queue.extend(neighbours.iter().filter(|&&next| {
                        neighbours.len() == 1 && !self.stores(next) && self.crowded(overlay, next)
                    }));
                    false
                }
                (false, &[_]) => {
                    overlay.remove(vertex);
                    true
                }
                (false, &[first, second]) if !self.crowded(overlay, vertex) => {
                    join(overlay, vertex, first, second);
                    true
                }
                (false, _) => {
                    if self.ride_with_fastest(overlay, vertex) {
                        queue.insert(vertex);
                    }
                    false
                }
            };
            if removed {
                queue.extend(neighbours);
            }
        }
    }

    /// The destinations whose only link leads to `switch`, the fastest first.
    fn hanging(&self, overlay: &Overlay, switch: usize) -> Vec<usize> {
        let neighbours = overlay.leaving(switch).map(|arc| overlay.head(arc));
        let hangs = |&host: &usize| host != self.source && self.stores(host) && overlay.degree(host) == 1;
        let mut hosts: Vec<usize> = neighbours.filter(hangs).collect();
        hosts.sort_by_key(|&host| (-self.rates[host], host));
        hosts
    }

    fn crowded(&self, overlay: &Overlay, switch: usize) -> bool {
        self.hanging(overlay, switch).len() > 1
    }

    /// Of the destinations that hang on `switch` all but the fastest ride, the slowest taken first. Whether any does.
    fn ride_with_fastest(&mut self, overlay: &mut Overlay, switch: usize) -> bool {
        let hosts = self.hanging(overlay, switch);
        let slower = hosts.get(1..).unwrap_or_default();
        for &host in slower.iter().rev() {
            self.ride(overlay, host);
        }
        !slower.is_empty()
    }

    /// The last rule; whether any host rides by it.
    fn ride_pairs(&mut self, overlay: &mut Overlay, spare: usize) -> bool {
        let mut groups: BTreeMap<[usize; 2], Vec<usize>> = BTreeMap::new();
        for host in (0..overlay.vertices()).filter(|&host| host != self.source && self.stores(host)) {
            let neighbours: Vec<usize> = overlay.leaving(host).map(|arc| overlay.head(arc)).collect();
            if let [first, second] = neighbours[..]
                && !self.stores(first)
                && !self.stores(second)
            {
                groups.entry([first, second]).or_default().push(host);
            }
        }
        let riders: Vec<usize> =
            groups.into_values().flat_map(|hosts| self.riders_of_pair(overlay, hosts, spare)).collect();
        for &host in &riders {
            self.ride(overlay, host);
        }
        !riders.is_empty()
    }

    /// Those of the hosts with the same two switches that can ride, the slowest first.
    fn riders_of_pair(&self, overlay: &Overlay, mut hosts: Vec<usize>, spare: usize) -> Vec<usize> {
        let link =
            |host: usize, link: usize| overlay.leaving(host).nth(link).map_or(0, |arc| overlay.capacity(arc));
        let most = |without: &dyn Fn(usize) -> i64| {
            let worth = |&host: &usize| (-(self.rates[host] - without(host)), -self.rates[host], host);
            hosts.iter().copied().min_by_key(worth)
        };
        let stay = [most(&|_| 0), most(&|host| link(host, 0)), most(&|host| link(host, 1))];
        hosts.retain(|&host| !stay.contains(&Some(host)));
        hosts.sort_by_key(|&host| (-link(host, 0).min(link(host, 1)), host));
        hosts.drain(..spare.min(hosts.len()));
        hosts.sort_by_key(|&host| (self.rates[host], Reverse(host)));
        hosts
    }

    /// Takes a host out.
    fn ride(&mut self, overlay: &mut Overlay, host: usize) {
        let routes = |arc: usize| {
            let pieces = overlay.pieces(arc).iter();
            pieces.map(|piece| (piece.amount, overlay.physical(piece.route))).collect()
        };
        let anchors = overlay.leaving(host).map(|arc| {
            let vertex = overlay.head(arc);
            Anchor { vertex, stores: self.stores(vertex), inward: routes(arc ^ 1), outward: routes(arc) }
        });
        self.riders.push(Rider { host, rate: self.rates[host], anchors: anchors.collect() });
        overlay.remove(host);
    }
}

/// Makes one link of the two of a switch.
fn join(overlay: &mut Overlay, switch: usize, first: usize, second: usize) {
    for (from, to) in [(first, second), (second, first)] {
        let (entering, leaving) = (overlay.arc_or_new(from, switch), overlay.arc_or_new(switch, to));
        let amount = overlay.capacity(entering).min(overlay.capacity(leaving));
        overlay.split(entering, leaving, amount);
    }
    overlay.remove(switch);
}
