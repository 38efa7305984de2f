//! What does the kernel know about a TCP connection?

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Offsets in `struct tcp_info` (include/uapi/linux/tcp.h); the structure only ever grows at its end, and libc's
/// copy of it ends before `tcpi_min_rtt`.
const TOTAL_RETRANS: usize = 100;
const MIN_RTT: usize = 148;
const BYTES: usize = 152;
/// `tcpi_min_rtt` of a connection that has no sample.
const NO_RTT: u32 = u32::MAX;

/// Part of `TCP_INFO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TcpInfo {
    /// Segments sent again since the connection began.
    pub(super) retransmits: u32,
    /// Smallest round trip seen; none before the first acknowledgement.
    pub(super) min_rtt_micros: Option<u32>,
}

/// Asks the kernel.
#[allow(unsafe_code)]
pub(super) fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    let mut raw = [0_u8; BYTES];
    let mut length = BYTES as libc::socklen_t;
    // SAFETY: the pointer and length describe `raw`, which outlives the call; the kernel writes at most `length`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(parse(&raw[..(length as usize).min(BYTES)]))
}

/// Kernels before 4.6 return less; what they do not know stays unknown.
fn parse(raw: &[u8]) -> TcpInfo {
    let field = |offset: usize| {
        raw.get(offset..offset + 4).map(|slice| u32::from_ne_bytes([slice[0], slice[1], slice[2], slice[3]]))
    };
    TcpInfo {
        retransmits: field(TOTAL_RETRANS).unwrap_or(0),
        min_rtt_micros: field(MIN_RTT).filter(|value| *value != NO_RTT),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_used_connection_has_a_round_trip_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"ping").unwrap();
        far.read_exact(&mut [0; 4]).unwrap();
        let info = tcp_info(near.as_fd()).unwrap();
        assert_eq!(info.retransmits, 0);
        assert!(info.min_rtt_micros.unwrap() < 10_000_000, "{info:?}");
    }

    #[test]
    fn a_shorter_structure_of_an_older_kernel_is_read_as_far_as_it_goes() {
        assert_eq!(parse(&[1; 104]), TcpInfo { retransmits: 0x0101_0101, min_rtt_micros: None });
        assert_eq!(parse(&[]), TcpInfo { retransmits: 0, min_rtt_micros: None });
    }
}
