//! What is this node like?

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use gridcast_proto::v1::DescribeReply;
use nix::net::if_::InterfaceFlags;

use crate::tune::normalize;

/// Settings that decide how fast TCP can be; `tcp_mem` is there only in the machine's own namespace.
const SETTINGS: &[&str] = &[
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_slow_start_after_idle",
];

/// Everything about the calling thread's network namespace and the node as they are now; `proc` is where /proc is
/// mounted, `group` the /proc/PID/cgroup whose limits bound its memory. What the kernel does not tell is left empty or 0.
pub(crate) fn describe(proc: &Path, group: Option<&Path>, name: &str, probe_port: u16) -> DescribeReply {
    let read = |key: &&str| Some(((*key).to_owned(), setting(proc, key)?));
    let words =
        |key| setting(proc, key).map(|text| text.split(' ').map(str::to_owned).collect()).unwrap_or_default();
    let settings: HashMap<String, String> = SETTINGS.iter().filter_map(read).collect();
    DescribeReply {
        name: name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id().into(),
        probe_port: probe_port.into(),
        available_congestion_controls: words("net.ipv4.tcp_available_congestion_control"),
        allowed_congestion_controls: words("net.ipv4.tcp_allowed_congestion_control"),
        memory_bytes: memory_bytes(proc, group),
        settings,
        mtu: mtu().unwrap_or(0),
    }
}

fn setting(proc: &Path, key: &str) -> Option<String> {
    let text = fs::read_to_string(proc.join("sys").join(key.replace('.', "/"))).ok()?;
    Some(normalize(&text))
}

/// What may be used: the machine's memory or the tightest limit of the control groups, as far as they can be seen.
fn memory_bytes(proc: &Path, group: Option<&Path>) -> u64 {
    let total = fs::read_to_string(proc.join("meminfo")).ok().and_then(|text| total_of(&text));
    let group = group.and_then(|path| fs::read_to_string(path).ok());
    let path = group.as_deref().and_then(|text| text.lines().find_map(|line| line.strip_prefix("0::/")));
    // A container that sees its own groups only: their limits are not those of others.
    let path = path.filter(|path| !path.split('/').any(|part| part == ".."));
    let mut limits: Vec<u64> = total.into_iter().collect();
    let root = Path::new("/sys/fs/cgroup");
    let mut directory: Option<PathBuf> = path.map(|path| root.join(path));
    while let Some(level) = directory.filter(|level| level.starts_with(root)) {
        let limit = fs::read_to_string(level.join("memory.max")).ok();
        limits.extend(limit.and_then(|text| text.trim().parse::<u64>().ok()));
        directory = level.parent().map(Path::to_owned);
    }
    limits.into_iter().min().unwrap_or(0)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// MTU of the first interface that is up, has an address and is not loopback; loopback's where there is no other.
/// Asked through a socket: /sys/class/net may show the interfaces of the namespace that mounted it.
fn mtu() -> io::Result<u32> {
    let mut names: Vec<(bool, String)> = nix::ifaddrs::getifaddrs()?
        .filter(|interface| interface.address.is_some() && interface.flags.contains(InterfaceFlags::IFF_UP))
        .map(|interface| (interface.flags.contains(InterfaceFlags::IFF_LOOPBACK), interface.interface_name))
        .collect();
    names.sort_by_key(|(loopback, _)| *loopback);
    let (_, name) = names.first().ok_or(io::ErrorKind::NotFound)?;
    mtu_of(name)
}

#[allow(unsafe_code)]
fn mtu_of(interface: &str) -> io::Result<u32> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: ifreq is plain data for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(room)) {
        *to = from.cast_signed();
    }
    // SAFETY: SIOCGIFMTU reads the name, which ends with NUL, and writes ifru_mtu, both within `request`.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so the kernel has filled this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_knows_its_settings_memory_and_mtu() {
        let facts = describe(Path::new("/proc"), Some(Path::new("/proc/self/cgroup")), "node-0", 7413);
        assert_eq!((facts.name.as_str(), facts.probe_port), ("node-0", 7413));
        assert_eq!(facts.settings["net.ipv4.tcp_rmem"].split(' ').count(), 3);
        assert!(facts.available_congestion_controls.contains(&"reno".to_owned()));
        assert!(facts.memory_bytes > 16 << 20);
        assert!(facts.mtu >= 576, "{}", facts.mtu);
        assert_eq!(mtu_of("lo").unwrap(), 65_536);
        assert!(mtu_of("no-such-interface-there").is_err());
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(total_of("MemTotal:       16384 kB\nMemFree: 1 kB\n"), Some(16 << 20));
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
    }
}
