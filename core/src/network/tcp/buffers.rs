//! Buffer maxima from the bandwidth-delay product.

use super::path::{Path, product_bytes};
use super::{HostFacts, Inputs, MEM, normalized};

/// Share of `tcp_rmem`'s maximum that becomes window.
const WINDOW_SHARE: f64 = 0.65;
/// Share of `tcp_wmem`'s maximum that can be in flight.
const FLIGHT_SHARE: f64 = 0.8;
/// No buffer is raised above this: larger ones cost more in queues than they bring.
const MOST_BYTES: u64 = 64 << 20;
/// A send buffer below this limits paths that nobody thinks of as long (1.5 Gbit/s at 18 ms).
const LEAST_SEND_BYTES: u64 = 4 << 20;
/// A rate within this of what the window allows is the window's, not the network's.
const WINDOW_LIMITED: f64 = 0.9;
/// The page size of every machine that gridcast is built for.
const PAGE_BYTES: f64 = 4096.0;

/// `tcp_rmem` for a host.
pub(super) fn receive(
    inputs: &Inputs<'_>,
    host: &HostFacts,
    paths: &[Path],
    before: &str,
) -> (String, String) {
    let buffer = Buffer { share: WINDOW_SHARE, least: 0, name: "rmem", verb: "receives" };
    buffer.plan(inputs, host, paths.iter().filter_map(|path| Some((path, path.inward_mbps?))), before)
}

/// `tcp_wmem` for a host.
pub(super) fn send(inputs: &Inputs<'_>, host: &HostFacts, paths: &[Path], before: &str) -> (String, String) {
    let buffer = Buffer { share: FLIGHT_SHARE, least: LEAST_SEND_BYTES, name: "wmem", verb: "sends" };
    buffer.plan(inputs, host, paths.iter().filter_map(|path| Some((path, path.outward_mbps?))), before)
}

struct Buffer {
    share: f64,
    least: u64,
    name: &'static str,
    verb: &'static str,
}

impl Buffer {
    fn plan<'a>(
        &self,
        inputs: &Inputs<'_>,
        host: &HostFacts,
        rates: impl Iterator<Item = (&'a Path, f64)>,
        before: &str,
    ) -> (String, String) {
        let fields: Vec<u64> = before.split(' ').filter_map(|field| field.parse().ok()).collect();
        let [least, default, maximum] = fields[..] else {
            return (before.to_owned(), format!("left alone: {before:?} is not three numbers"));
        };
        let widest = rates
            .map(|(path, mbps)| {
                let (mbps, limited) = self.path_mbps(host, maximum, path.rtt_milliseconds, mbps);
                (path, mbps, limited, product_bytes(mbps, path.rtt_milliseconds))
            })
            .max_by(|a, b| a.3.total_cmp(&b.3));
        let Some((path, mbps, limited, product)) = widest else {
            return (before.to_owned(), "left alone: no bandwidth was measured on this host".to_owned());
        };
        let wanted = power_of_two(2.0 * product / self.share).max(self.least);
        let cap = cap_bytes(inputs, host);
        let value = wanted.min(cap).max(maximum);
        let rule = format!(
            "{} at most {mbps:.0} Mbit/s at {:.2} ms ({}): 2 x {} / {} asks for {}",
            self.verb,
            path.rtt_milliseconds,
            path.peer,
            bytes(product as u64),
            self.share,
            bytes(wanted),
        );
        let verdict = if wanted <= maximum {
            format!("the maximum of {} suffices", bytes(maximum))
        } else if value < wanted {
            format!("limited by memory to {}", bytes(value))
        } else {
            format!("maximum raised from {}", bytes(maximum))
        };
        let hint = if limited { self.window_hint() } else { String::new() };
        (format!("{least} {default} {value}"), format!("{rule}; {verdict}{hint}"))
    }

    /// What the path can carry: what was measured, unless the window limited it and the interface's rate is declared.
    fn path_mbps(&self, host: &HostFacts, maximum: u64, rtt_milliseconds: f64, mbps: f64) -> (f64, bool) {
        let window_mbps = maximum as f64 * self.share * 8.0 / 1e6 / (rtt_milliseconds / 1e3);
        let limited = mbps >= WINDOW_LIMITED * window_mbps;
        match host.interface_mbps.filter(|_| limited) {
            Some(interface) => (interface.max(mbps), false),
            None => (mbps, limited),
        }
    }

    fn window_hint(&self) -> String {
        format!(
            "; {} limits what was measured, the path may carry more: measure again with the new value",
            self.name
        )
    }
}

/// What one socket's buffer may take: half of the machine's TCP pages, or a quarter of the host's memory, over all
/// sockets; rounded down to a power of two.
fn cap_bytes(inputs: &Inputs<'_>, host: &HostFacts) -> u64 {
    let pressure_pages = host
        .settings
        .get(MEM)
        .and_then(|value| normalized(value).split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()));
    let pages = pressure_pages.map(|pages| 0.5 * pages * PAGE_BYTES);
    let memory = (host.memory_bytes > 0).then_some(0.25 * host.memory_bytes as f64);
    let budget = match (pages, memory) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b).unwrap_or(f64::INFINITY),
    };
    let peers = inputs.hosts.len().saturating_sub(1).max(1) as f64;
    let share = budget / (peers * f64::from(inputs.sockets_per_peer.max(1)));
    let share = share.min(MOST_BYTES as f64) as u64;
    share.checked_ilog2().map_or(0, |exponent| 1 << exponent)
}

/// The next power of two, within [`MOST_BYTES`].
fn power_of_two(bytes: f64) -> u64 {
    (bytes.clamp(1.0, MOST_BYTES as f64).ceil() as u64).next_power_of_two()
}

/// `8 MiB`, `64 KiB`, `31.2 KB`: powers of two as such.
fn bytes(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b if b >= 1_000_000 => format!("{:.2} MB", b as f64 / 1e6),
        b if b >= 1000 => format!("{:.1} kB", b as f64 / 1e3),
        b => format!("{b} B"),
    }
}
