//! When did a datagram pass the kernel?

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{OwnedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use super::ProbeError;
use crate::bind;

/// Room for some eighty datagrams of 50,000 bytes; the kernel cuts it to net.core.rmem_max.
const BUFFER_BYTES: usize = 4 << 20;

/// One datagram, or one message of the error queue.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) bytes: usize,
    pub(super) from: Option<SockaddrStorage>,
    /// Kernel's stamp, nanoseconds since 1970.
    pub(super) kernel_nanos: Option<u64>,
    pub(super) ttl: u8,
    /// Where it was sent to.
    pub(super) local: Option<Destination>,
    /// On the error queue: number of the datagram whose sending is reported.
    pub(super) transmitted: Option<u32>,
}

/// The address that a datagram was sent to, in the form in which a reply is sent from there.
#[derive(Debug)]
pub(super) enum Destination {
    /// Of a socket of IPv4.
    V4(libc::in_pktinfo),
    /// Of a socket that hears both; an IPv4 address is one of `::ffff:0:0/96`.
    V6(libc::in6_pktinfo),
}

impl Destination {
    /// To be sent with the reply.
    pub(super) fn as_source(&self) -> ControlMessage<'_> {
        match self {
            Self::V4(info) => ControlMessage::Ipv4PacketInfo(info),
            Self::V6(info) => ControlMessage::Ipv6PacketInfo(info),
        }
    }
}

/// Room for every control message that the sockets of this module ask for.
pub(super) fn control_buffer() -> Vec<u8> {
    cmsg_space!([libc::timespec; 3], libc::in6_pktinfo, libc::c_int, [libc::sockaddr_in6; 2])
}

/// A UDP socket bound to `address`, with buffers for large datagrams.
pub(super) fn udp(address: SocketAddr) -> Result<UdpSocket, ProbeError> {
    let enlarge = |socket: &OwnedFd| {
        // Smaller buffers only mean that more is lost in a burst.
        let _ = setsockopt(socket, sockopt::RcvBuf, &BUFFER_BYTES);
        let _ = setsockopt(socket, sockopt::SndBuf, &BUFFER_BYTES);
        Ok(())
    };
    bind::udp(address, enlarge).map_err(|errno| ProbeError::system(format!("open UDP {address}"), errno))
}

/// One datagram without waiting; `EAGAIN` where there is none.
pub(super) fn receive(
    fd: RawFd,
    buffer: &mut [u8],
    control: &mut [u8],
    queue: MsgFlags,
) -> Result<Datagram, Errno> {
    let mut slices = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(fd, &mut slices, Some(control), MsgFlags::MSG_DONTWAIT | queue)?;
    let mut datagram = Datagram {
        bytes: message.bytes,
        from: message.address,
        kernel_nanos: None,
        ttl: 0,
        local: None,
        transmitted: None,
    };
    for item in message.cmsgs()? {
        match item {
            ControlMessageOwned::ScmTimestampns(time) => datagram.kernel_nanos = nanos(time),
            ControlMessageOwned::ScmTimestampsns(times) => datagram.kernel_nanos = nanos(times.system),
            ControlMessageOwned::Ipv4Ttl(ttl) => datagram.ttl = u8::try_from(ttl).unwrap_or(0),
            ControlMessageOwned::Ipv6HopLimit(limit) => datagram.ttl = u8::try_from(limit).unwrap_or(0),
            ControlMessageOwned::Ipv4PacketInfo(info) => {
                datagram.local = Some(Destination::V4(libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: info.ipi_addr,
                    ipi_addr: libc::in_addr { s_addr: 0 },
                }));
            }
            // The way back is the system's to choose.
            ControlMessageOwned::Ipv6PacketInfo(info) => {
                datagram.local = Some(Destination::V6(libc::in6_pktinfo { ipi6_ifindex: 0, ..info }));
            }
            ControlMessageOwned::Ipv4RecvErr(error, _) | ControlMessageOwned::Ipv6RecvErr(error, _)
                if error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING =>
            {
                datagram.transmitted = Some(error.ee_data);
            }
            _ => {}
        }
    }
    Ok(datagram)
}

/// Nanoseconds since 1970 on the clock that the kernel stamps with.
pub(super) fn realtime_nanos() -> u64 {
    // CLOCK_REALTIME exists on every Linux; 0 would only make the stamp implausible, and so unused.
    clock_gettime(ClockId::CLOCK_REALTIME).ok().and_then(nanos).unwrap_or(0)
}

/// The kernel writes 0 where it took no stamp.
fn nanos(time: TimeSpec) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec()).ok()?;
    let nanos = u64::try_from(time.tv_nsec()).ok()?;
    Some(seconds * 1_000_000_000 + nanos).filter(|total| *total != 0)
}
