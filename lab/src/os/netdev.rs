//! Interfaces of the calling thread's network namespace, by ioctl, so that no `ip` program is needed.

use std::fs::File;
use std::io;
use std::mem::zeroed;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// `struct rtentry` of `linux/route.h`, which libc has for other C libraries only.
#[repr(C)]
struct Route {
    pad1: libc::c_ulong,
    destination: libc::sockaddr,
    gateway: libc::sockaddr,
    netmask: libc::sockaddr,
    flags: libc::c_ushort,
    pad2: libc::c_short,
    pad3: libc::c_ulong,
    pad4: *mut libc::c_void,
    metric: libc::c_short,
    device: *mut libc::c_char,
    mtu: libc::c_ulong,
    window: libc::c_ulong,
    initial_rtt: libc::c_ushort,
}

mod request {
    nix::ioctl_read_bad!(get_flags, libc::SIOCGIFFLAGS, libc::ifreq);
    nix::ioctl_write_ptr_bad!(set_flags, libc::SIOCSIFFLAGS, libc::ifreq);
    nix::ioctl_write_ptr_bad!(set_address, libc::SIOCSIFADDR, libc::ifreq);
    nix::ioctl_write_ptr_bad!(set_netmask, libc::SIOCSIFNETMASK, libc::ifreq);
    nix::ioctl_write_ptr_bad!(set_broadcast, libc::SIOCSIFBRDADDR, libc::ifreq);
    nix::ioctl_write_ptr_bad!(set_mtu, libc::SIOCSIFMTU, libc::ifreq);
    nix::ioctl_write_ptr_bad!(set_queue, libc::SIOCSIFTXQLEN, libc::ifreq);
    nix::ioctl_write_ptr_bad!(add_route, libc::SIOCADDRT, super::Route);
    nix::ioctl_write_ptr_bad!(tun_name, libc::TUNSETIFF, libc::ifreq);
    nix::ioctl_write_int_bad!(tun_offload, libc::TUNSETOFFLOAD);
}

/// A request about the interface `name`, everything else zero.
#[allow(unsafe_code)]
fn request_for(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: the struct is plain integers and unions of them, for which zero bytes are a value.
    let mut request: libc::ifreq = unsafe { zeroed() };
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an interface name has 1 to 15 bytes"));
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte.cast_signed();
    }
    Ok(request)
}

/// An IPv4 address where the kernel wants a socket address.
#[allow(unsafe_code)]
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    // SAFETY: as in `request_for`.
    let mut internet: libc::sockaddr_in = unsafe { zeroed() };
    internet.sin_family = libc::AF_INET as libc::sa_family_t;
    internet.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
    // SAFETY: both are plain structs of 16 bytes, and the kernel reads the one as the other by its family.
    unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(internet) }
}

fn control_socket() -> io::Result<OwnedFd> {
    Ok(socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?)
}

/// Sets the interface up.
#[allow(unsafe_code)]
pub(crate) fn set_up(name: &str) -> io::Result<()> {
    let control = control_socket()?;
    let mut request = request_for(name)?;
    // SAFETY: the descriptor is open and the request a live struct of the type of the call; the kernel fills in
    // the flags, the union member that is read after.
    unsafe {
        request::get_flags(control.as_raw_fd(), &raw mut request)?;
        request.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        request::set_flags(control.as_raw_fd(), &raw const request)?;
    }
    Ok(())
}

/// What an interface of a node gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Its address.
    pub(crate) address: Ipv4Addr,
    /// Length of its network's prefix, bits.
    pub(crate) prefix: u8,
    /// Largest IP packet, bytes.
    pub(crate) mtu: i32,
    /// Packets that wait until the fabric reads them.
    pub(crate) queue_packets: i32,
}

/// Gives the interface its settings and sets it up, with routes to the limited broadcast address and to all
/// multicast groups, for there is no default route that would lead there.
#[allow(unsafe_code)]
pub(crate) fn configure(name: &str, settings: Settings) -> io::Result<()> {
    let control = control_socket()?;
    let fd = control.as_raw_fd();
    let mask = netmask(settings.prefix);
    let broadcast = Ipv4Addr::from(u32::from(settings.address) | !u32::from(mask));
    let mut request = request_for(name)?;
    // SAFETY: the descriptor is open and the request a live struct of the type of each call, which reads the
    // union member written just before it.
    unsafe {
        request.ifr_ifru.ifru_mtu = settings.mtu;
        request::set_mtu(fd, &raw const request)?;
        request.ifr_ifru.ifru_metric = settings.queue_packets;
        request::set_queue(fd, &raw const request)?;
        request.ifr_ifru.ifru_addr = socket_address(settings.address);
        request::set_address(fd, &raw const request)?;
        request.ifr_ifru.ifru_netmask = socket_address(mask);
        request::set_netmask(fd, &raw const request)?;
        request.ifr_ifru.ifru_broadaddr = socket_address(broadcast);
        request::set_broadcast(fd, &raw const request)?;
    }
    set_up(name)?;
    for (destination, prefix) in [(Ipv4Addr::new(224, 0, 0, 0), 4), (Ipv4Addr::BROADCAST, 32)] {
        add_route(&control, name, destination, prefix)?;
    }
    Ok(())
}

#[allow(unsafe_code)]
fn add_route(control: &OwnedFd, name: &str, destination: Ipv4Addr, prefix: u8) -> io::Result<()> {
    let mut device = request_for(name)?.ifr_name;
    // SAFETY: plain integers and pointers, which are null where they are zero.
    let mut route: Route = unsafe { zeroed() };
    route.destination = socket_address(destination);
    route.netmask = socket_address(netmask(prefix));
    route.flags = libc::RTF_UP;
    route.device = device.as_mut_ptr();
    // SAFETY: `device` is a terminated string (its last byte is zero) that outlives the call.
    unsafe { request::add_route(control.as_raw_fd(), &raw const route) }?;
    Ok(())
}

fn netmask(prefix: u8) -> Ipv4Addr {
    Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0))
}

/// Makes a TUN interface that hands over whole TCP super-packets with their virtio header and checksums left to
/// be completed. It vanishes when the descriptor closes.
#[allow(unsafe_code)]
pub(crate) fn open_tun(name: &str) -> io::Result<File> {
    let tun = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    let mut request = request_for(name)?;
    request.ifr_ifru.ifru_flags =
        (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL) as libc::c_short;
    // SAFETY: the descriptor is open; the first call reads a live struct of its type, the second an integer.
    unsafe {
        request::tun_name(tun.as_raw_fd(), &raw const request)?;
        request::tun_offload(tun.as_raw_fd(), (libc::TUN_F_CSUM | libc::TUN_F_TSO4).cast_signed())?;
    }
    Ok(tun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(netmask(0), Ipv4Addr::UNSPECIFIED);
        assert_eq!(netmask(4), Ipv4Addr::new(240, 0, 0, 0));
        assert_eq!(netmask(16), Ipv4Addr::new(255, 255, 0, 0));
        assert_eq!(netmask(32), Ipv4Addr::BROADCAST);
    }

    #[test]
    fn interface_names_fit() {
        assert!(request_for("eth0").is_ok());
        assert!(request_for("").is_err());
        assert!(request_for("sixteen-bytes-xx").is_err());
    }
}
