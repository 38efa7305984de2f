//! How does a node get its interface?

use std::fs::{self, File};
use std::io;

use super::{FabricError, INTERFACE, Port};
use crate::node::in_network;
use crate::os::netdev::{Settings, configure, open_tun};

/// As on Ethernet.
const MTU: i32 = 1500;
/// Packets that wait in the interface until the fabric reads them. The interface drops what does not fit without a
/// trace in our counters, so there is room for more than a host sends while the fabric looks elsewhere.
const QUEUE_PACKETS: i32 = 10_000;

/// Makes the interface of a port and sets it up.
pub(crate) fn open(port: &Port) -> Result<File, FabricError> {
    let opened = in_network(port.pid, || {
        let tun = open_tun(INTERFACE)?;
        silence_ipv6()?;
        let Port { address, prefix, .. } = *port;
        configure(INTERFACE, Settings { address, prefix, mtu: MTU, queue_packets: QUEUE_PACKETS })?;
        Ok(tun)
    });
    opened.map_err(FabricError::machine(format!("make {INTERFACE} in {} (process {})", port.host, port.pid)))
}

/// The fabric carries IPv4. A link-local IPv6 address would promise what is not kept, and solicit for routers.
fn silence_ipv6() -> io::Result<()> {
    match fs::write(format!("/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6"), "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
