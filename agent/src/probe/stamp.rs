//! What does a probe packet look like?
//!
//! STAMP, unauthenticated mode (RFC 8762 sections 4.2.1 and 4.3.1) with the session identifier and the Extra Padding
//! TLV of RFC 8972. All numbers big-endian.
//!
//! ```text
//! offset  request (Session-Sender)         reply (Session-Reflector)
//!      0  sequence number         u32      sequence number (the sender's: stateless)  u32
//!      4  timestamp, NTP 32.32    u64      timestamp of leaving the reflector         u64
//!     12  error estimate          u16      error estimate                             u16
//!     14  session identifier      u16      session identifier, copied                 u16
//!     16  must be zero       28 bytes      timestamp of arrival at the reflector      u64
//!     24                                   the sender's sequence number               u32
//!     28                                   the sender's timestamp                     u64
//!     36                                   the sender's error estimate                u16
//!     38                                   must be zero                               u16
//!     40                                   TTL of the request on arrival              u8
//!     41                                   must be zero                           3 bytes
//!     44  Extra Padding TLV                the same bytes; its U flag cleared
//! ```
//!
//! RFC 8762 has receivers ignore the request's zero field. This reflector insists on zeros: a reply never passes
//! for a request, so two reflectors cannot be made to answer each other for ever.

use thiserror::Error;

/// Bytes of a packet without padding, and the least that is sent.
pub const BASE_BYTES: usize = 44;
/// The most that fits a UDP datagram over IPv4.
pub const MAX_BYTES: usize = 65_507;
/// Error estimate of a stamp taken in the kernel: 1 x 2^12 x 2^-32 s, about 1 microsecond; clock not claimed to be
/// synchronized (S = 0), NTP format (Z = 0).
pub const ERROR_KERNEL: u16 = 0x0C01;
/// The same for a stamp taken by the process: 53 x 2^-20 s, about 50 microseconds of scheduling.
pub const ERROR_USER: u16 = 0x0C35;

const TLV_HEADER_BYTES: usize = 4;
const TLV_UNRECOGNIZED: u8 = 0x80;
const TLV_EXTRA_PADDING: u8 = 1;
/// Seconds from 1900 (NTP) to 1970 (Unix).
const NTP_TO_UNIX_SECONDS: u64 = 2_208_988_800;
const NANOS: u64 = 1_000_000_000;

/// NTP timestamp: seconds since 1900 modulo 2^32, and 2^-32 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From nanoseconds since 1970.
    pub fn from_unix_nanos(nanos: u64) -> Self {
        let seconds = (nanos / NANOS + NTP_TO_UNIX_SECONDS) & 0xFFFF_FFFF;
        let fraction = ((nanos % NANOS) << 32) / NANOS;
        Self((seconds << 32) | fraction)
    }

    /// Nanoseconds from `earlier` to this; right across the wrap of 2036, for intervals below 68 years.
    pub fn nanos_since(self, earlier: Self) -> i64 {
        let ticks = i128::from(self.0.wrapping_sub(earlier.0).cast_signed());
        let nanos = (ticks * i128::from(NANOS) + (1 << 31)) >> 32;
        i64::try_from(nanos).unwrap_or(i64::MAX)
    }
}

/// Why a datagram is not a packet of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Shorter than [`BASE_BYTES`].
    #[error("shorter than 44 bytes")]
    Short,
    /// An error estimate with the forbidden multiplier 0, as in a datagram of zeros.
    #[error("error estimate has multiplier 0")]
    ErrorEstimate,
    /// The request's zero field is not zero: a reply, or no STAMP at all.
    #[error("bytes that must be zero are not")]
    NotZero,
    /// A timestamp format other than NTP (PTPv2, RFC 8186).
    #[error("timestamps are not in NTP format")]
    Format,
}

/// What a sender writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Counts from 0 in a session.
    pub sequence: u32,
    /// When it left.
    pub timestamp: Timestamp,
    /// See [`ERROR_USER`].
    pub error: u16,
    /// Chosen by the sender, copied by the reflector.
    pub session: u16,
}

impl Request {
    /// Fills `packet`, whose length (at least [`BASE_BYTES`]) is the packet's.
    ///
    /// Between 45 and 47 bytes no TLV fits; the rest is zero then, as RFC 8762 alone would have it.
    pub fn write(&self, packet: &mut [u8]) {
        debug_assert!((BASE_BYTES..=MAX_BYTES).contains(&packet.len()), "packet of {} bytes", packet.len());
        packet.fill(0);
        self.stamp(packet);
        if let Some(padding) = packet.len().checked_sub(BASE_BYTES + TLV_HEADER_BYTES) {
            let length = u16::try_from(padding).unwrap_or(u16::MAX);
            packet[44] = TLV_UNRECOGNIZED;
            packet[45] = TLV_EXTRA_PADDING;
            packet[46..48].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// Rewrites only what changes from packet to packet.
    pub fn stamp(&self, packet: &mut [u8]) {
        packet[0..4].copy_from_slice(&self.sequence.to_be_bytes());
        packet[4..12].copy_from_slice(&self.timestamp.0.to_be_bytes());
        packet[12..14].copy_from_slice(&self.error.to_be_bytes());
        packet[14..16].copy_from_slice(&self.session.to_be_bytes());
    }

    /// Reads a request and refuses what is not certainly one.
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        if packet.len() < BASE_BYTES {
            return Err(Malformed::Short);
        }
        let request = Self {
            sequence: u32_at(packet, 0),
            timestamp: Timestamp(u64_at(packet, 4)),
            error: u16_at(packet, 12),
            session: u16_at(packet, 14),
        };
        check_error(request.error)?;
        if packet[16..BASE_BYTES].iter().any(|byte| *byte != 0) {
            return Err(Malformed::NotZero);
        }
        Ok(request)
    }
}

/// What a reflector writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The request, as the reflector saw it.
    pub request: Request,
    /// When it arrived at the reflector.
    pub received: Timestamp,
    /// TTL it arrived with; 0 where the system does not say.
    pub ttl: u8,
    /// When the reply left.
    pub sent: Timestamp,
    /// See [`ERROR_KERNEL`].
    pub error: u16,
}

impl Reply {
    /// Turns the packet that held the request into the reply, of the same length.
    pub fn write(&self, packet: &mut [u8]) {
        packet[0..4].copy_from_slice(&self.request.sequence.to_be_bytes());
        packet[4..12].copy_from_slice(&self.sent.0.to_be_bytes());
        packet[12..14].copy_from_slice(&self.error.to_be_bytes());
        packet[14..16].copy_from_slice(&self.request.session.to_be_bytes());
        packet[16..24].copy_from_slice(&self.received.0.to_be_bytes());
        packet[24..28].copy_from_slice(&self.request.sequence.to_be_bytes());
        packet[28..36].copy_from_slice(&self.request.timestamp.0.to_be_bytes());
        packet[36..38].copy_from_slice(&self.request.error.to_be_bytes());
        packet[38..40].fill(0);
        packet[40] = self.ttl;
        packet[41..44].fill(0);
        if packet.len() >= BASE_BYTES + TLV_HEADER_BYTES && packet[45] == TLV_EXTRA_PADDING {
            packet[44] &= !TLV_UNRECOGNIZED;
        }
    }

    /// Reads a reply.
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        if packet.len() < BASE_BYTES {
            return Err(Malformed::Short);
        }
        let error = u16_at(packet, 12);
        check_error(error)?;
        // Packets with PTPv2 stamps are legal STAMP, but none of our reflectors sends them.
        if error & 0x4000 != 0 {
            return Err(Malformed::Format);
        }
        Ok(Self {
            request: Request {
                sequence: u32_at(packet, 24),
                timestamp: Timestamp(u64_at(packet, 28)),
                error: u16_at(packet, 36),
                session: u16_at(packet, 14),
            },
            received: Timestamp(u64_at(packet, 16)),
            ttl: packet[40],
            sent: Timestamp(u64_at(packet, 4)),
            error,
        })
    }

    /// Nanoseconds that the packet spent in the reflector; 0 where its clock was set back meanwhile.
    pub fn residence_nanos(&self) -> u64 {
        u64::try_from(self.sent.nanos_since(self.received)).unwrap_or(0)
    }
}

fn check_error(error: u16) -> Result<(), Malformed> {
    let multiplier = error.to_be_bytes()[1];
    if multiplier == 0 { Err(Malformed::ErrorEstimate) } else { Ok(()) }
}

fn bytes_at<const N: usize>(packet: &[u8], offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&packet[offset..offset + N]);
    bytes
}

fn u16_at(packet: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes(bytes_at(packet, offset))
}

fn u32_at(packet: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(bytes_at(packet, offset))
}

fn u64_at(packet: &[u8], offset: usize) -> u64 {
    u64::from_be_bytes(bytes_at(packet, offset))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNIX: u64 = 1_700_000_000_500_000_000;

    fn request() -> Request {
        Request {
            sequence: 0x0102_0304,
            timestamp: Timestamp::from_unix_nanos(UNIX),
            error: ERROR_USER,
            session: 0xABCD,
        }
    }

    #[test]
    fn request_has_the_bytes_of_the_rfc() {
        let mut packet = [0xFF; 64];
        request().write(&mut packet);
        let mut expected = [0; 64];
        expected[0..4].copy_from_slice(&[1, 2, 3, 4]);
        // 1700000000 + 2208988800 = 3908988800 = 0xE8FE6F80; half a second = 0x80000000.
        expected[4..12].copy_from_slice(&[0xE8, 0xFE, 0x6F, 0x80, 0x80, 0, 0, 0]);
        expected[12..16].copy_from_slice(&[0x0C, 0x35, 0xAB, 0xCD]);
        expected[44..48].copy_from_slice(&[0x80, 1, 0, 16]);
        assert_eq!(packet, expected);
    }

    #[test]
    fn reply_has_the_bytes_of_the_rfc_and_the_length_of_the_request() {
        let mut packet = [0; 48];
        request().write(&mut packet);
        let reply = Reply {
            request: Request::parse(&packet).unwrap(),
            received: Timestamp::from_unix_nanos(UNIX + 250_000_000),
            ttl: 63,
            sent: Timestamp::from_unix_nanos(UNIX + 500_000_000),
            error: ERROR_KERNEL,
        };
        reply.write(&mut packet);
        let mut expected = [0; 48];
        expected[0..4].copy_from_slice(&[1, 2, 3, 4]);
        expected[4..12].copy_from_slice(&[0xE8, 0xFE, 0x6F, 0x81, 0, 0, 0, 0]);
        expected[12..16].copy_from_slice(&[0x0C, 0x01, 0xAB, 0xCD]);
        expected[16..24].copy_from_slice(&[0xE8, 0xFE, 0x6F, 0x80, 0xC0, 0, 0, 0]);
        expected[24..28].copy_from_slice(&[1, 2, 3, 4]);
        expected[28..36].copy_from_slice(&[0xE8, 0xFE, 0x6F, 0x80, 0x80, 0, 0, 0]);
        expected[36..38].copy_from_slice(&[0x0C, 0x35]);
        expected[40] = 63;
        expected[44..48].copy_from_slice(&[0, 1, 0, 0]);
        assert_eq!(packet, expected);
        assert_eq!(Reply::parse(&packet), Ok(reply));
        assert_eq!(reply.residence_nanos(), 250_000_000);
    }

    #[test]
    fn a_reply_is_never_taken_for_a_request() {
        let mut packet = [0; 44];
        request().write(&mut packet);
        let now = Timestamp::from_unix_nanos(UNIX);
        let request = Request::parse(&packet).unwrap();
        Reply { request, received: now, ttl: 0, sent: now, error: ERROR_USER }.write(&mut packet);
        assert_eq!(Request::parse(&packet), Err(Malformed::NotZero));
    }

    #[test]
    fn short_and_empty_packets_are_refused() {
        assert_eq!(Request::parse(&[0; 43]), Err(Malformed::Short));
        assert_eq!(Request::parse(&[0; 44]), Err(Malformed::ErrorEstimate));
        assert_eq!(Reply::parse(&[]), Err(Malformed::Short));
    }

    #[test]
    fn intervals_cross_the_end_of_the_ntp_era() {
        let before = Timestamp::from_unix_nanos(2_085_978_495 * NANOS + 999_999_999);
        let after = Timestamp::from_unix_nanos(2_085_978_496 * NANOS + 1);
        assert_eq!(after.nanos_since(before), 2);
        assert_eq!(before.nanos_since(after), -2);
    }

    proptest! {
        #[test]
        fn intervals_are_right_to_the_nanosecond(start in 0..4_000_000_000_000_000_000_u64, length in 0..10_000_000_000_u64) {
            let measured = Timestamp::from_unix_nanos(start + length).nanos_since(Timestamp::from_unix_nanos(start));
            prop_assert!((measured - i64::try_from(length).unwrap()).abs() <= 1, "{measured} for {length}");
        }

        #[test]
        fn no_datagram_makes_the_decoders_fail(packet in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Request::parse(&packet);
            let _ = Reply::parse(&packet);
        }

        #[test]
        fn every_size_survives_the_way(length in BASE_BYTES..=MAX_BYTES) {
            let mut packet = vec![0; length];
            request().write(&mut packet);
            prop_assert_eq!(Request::parse(&packet), Ok(request()));
        }
    }
}
