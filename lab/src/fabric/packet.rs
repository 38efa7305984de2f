//! What is a packet here, and how is a part of a super-packet sent alone?
//!
//! Linux hands TCP to a TUN device in super-packets of up to 64 KiB, with a virtio header that says how to cut them
//! into segments. They stay whole: a part of one is a [`Window`] of its segments, and only when a window is
//! delivered that is not the whole packet are headers written for it. Payload is never copied.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::rc::Rc;

/// Length of the virtio header in front of each packet.
pub(crate) const VIRTIO: usize = 10;
/// What Ethernet adds to an IP packet on the wire: preamble 8, header 14, check sequence 4, gap 12 bytes.
pub(crate) const FRAME_OVERHEAD: u64 = 38;
/// The largest that a TUN device hands over.
pub(crate) const MAX_BYTES: usize = VIRTIO + 65_536;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
/// The sender uses explicit congestion notification; a bit beside the type.
const GSO_ECN: u8 = 0x80;
const TCP: u8 = 6;
const FIN_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
/// An IP header and a TCP header, each with all options.
const MAX_HEADERS: usize = VIRTIO + 60 + 60;

/// How many bytes of packets there are.
pub(crate) type Account = Rc<Cell<usize>>;

/// An IPv4 packet or TCP super-packet with its virtio header.
#[derive(Debug)]
pub(crate) struct Packet {
    bytes: Box<[u8]>,
    shape: Shape,
    account: Account,
}

impl Drop for Packet {
    fn drop(&mut self) {
        self.account.set(self.account.get().saturating_sub(self.bytes.len()));
    }
}

/// How a packet divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Bytes of IP header.
    ip_header: usize,
    /// Bytes of all headers that each segment carries; for a packet that does not divide, all of it.
    headers: usize,
    /// Bytes that are divided.
    payload: usize,
    /// Bytes of them in each segment but the last.
    segment: usize,
    /// Number of segments, at least 1.
    segments: u32,
}

/// Some successive segments of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The first.
    pub(crate) first: u32,
    /// How many, at least 1.
    pub(crate) count: u32,
}

/// Headers for a window, and where its payload is.
#[derive(Debug)]
pub(crate) struct Part {
    headers: [u8; MAX_HEADERS],
    length: usize,
    payload: Range<usize>,
}

impl Packet {
    /// Takes what a TUN device has handed over; none where it is not IPv4.
    pub(crate) fn read(bytes: &[u8], account: &Account) -> Option<Self> {
        let ip = bytes.get(VIRTIO..)?;
        let ip_header = usize::from(ip.first()? & 15) * 4;
        if ip[0] >> 4 != 4 || ip_header < 20 || ip.len() < ip_header {
            return None;
        }
        account.set(account.get() + bytes.len());
        let shape = Shape::of(bytes, ip_header);
        Some(Self { bytes: bytes.into(), shape, account: Rc::clone(account) })
    }

    /// Where it goes.
    pub(crate) fn destination(&self) -> Ipv4Addr {
        let ip = &self.bytes[VIRTIO..];
        Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19])
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Window {
        Window { first: 0, count: self.shape.segments }
    }

    /// Bytes on the wire of each segment but the last, which has as many or fewer.
    pub(crate) fn frame_bytes(&self) -> u64 {
        (self.shape.headers + self.shape.segment) as u64 + FRAME_OVERHEAD
    }

    /// Bytes on the wire of a window.
    pub(crate) fn wire_bytes(&self, window: Window) -> u64 {
        let each = self.shape.headers as u64 + FRAME_OVERHEAD;
        self.payload(window).len() as u64 + u64::from(window.count) * each
    }

    /// The payload of a window, counted from the end of the headers.
    fn payload(&self, window: Window) -> Range<usize> {
        let Shape { segment, payload, .. } = self.shape;
        let start = (window.first as usize * segment).min(payload);
        start..(start + window.count as usize * segment).min(payload)
    }

    /// All its bytes, virtio header first.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The part of it that a window is; none where that is all.
    pub(crate) fn part(&self, window: Window) -> Option<Part> {
        if window == self.whole() {
            return None;
        }
        let Shape { ip_header, headers, segments, segment, .. } = self.shape;
        let payload = self.payload(window);
        let mut part = Part {
            headers: [0; MAX_HEADERS],
            length: VIRTIO + headers,
            payload: VIRTIO + headers + payload.start..VIRTIO + headers + payload.end,
        };
        part.headers[..VIRTIO + headers].copy_from_slice(&self.bytes[..VIRTIO + headers]);
        let (virtio, ip) = part.headers.split_at_mut(VIRTIO);
        write_virtio(virtio, ip_header, if payload.len() > segment { segment } else { 0 });
        let tcp_length = headers - ip_header + payload.len();
        let identification = u16_at(ip, 4).wrapping_add(window.first as u16);
        put_u16(ip, 2, (ip_header + tcp_length) as u16);
        put_u16(ip, 4, identification);
        put_u16(ip, 10, 0);
        let checksum = !fold(sum(&ip[..ip_header]));
        put_u16(ip, 10, checksum);
        let sequence = u32_at(ip, ip_header + 4).wrapping_add(payload.start as u32);
        ip[ip_header + 4..ip_header + 8].copy_from_slice(&sequence.to_be_bytes());
        if window.first + window.count < segments {
            ip[ip_header + 13] &= !FIN_PSH;
        }
        if window.first > 0 {
            ip[ip_header + 13] &= !CWR;
        }
        // The checksum over the pseudo-header only; whoever receives the packet adds the rest or need not.
        let pseudo = sum(&ip[12..20]) + u32::from(TCP) + tcp_length as u32;
        put_u16(ip, ip_header + 16, fold(pseudo));
        Some(part)
    }
}

impl Part {
    /// Its headers, virtio header first.
    pub(crate) fn headers(&self) -> &[u8] {
        &self.headers[..self.length]
    }

    /// Its payload within the packet that it is of.
    pub(crate) fn payload<'a>(&self, packet: &'a Packet) -> &'a [u8] {
        &packet.bytes[self.payload.clone()]
    }
}

impl Shape {
    fn of(bytes: &[u8], ip_header: usize) -> Self {
        let ip = &bytes[VIRTIO..];
        let one = Self { ip_header, headers: ip.len(), payload: 0, segment: 0, segments: 1 };
        let segment = usize::from(u16::from_ne_bytes([bytes[4], bytes[5]]));
        if bytes[1] & !GSO_ECN != GSO_TCP4 || segment == 0 || ip[9] != TCP || ip.len() < ip_header + 20 {
            return one;
        }
        let tcp_header = usize::from(ip[ip_header + 12] >> 4) * 4;
        let headers = ip_header + tcp_header;
        match ip.len().checked_sub(headers) {
            Some(payload) if tcp_header >= 20 && payload > segment => {
                let segments = payload.div_ceil(segment) as u32;
                Self { ip_header, headers, payload, segment, segments }
            }
            _ => one,
        }
    }
}

fn write_virtio(virtio: &mut [u8], ip_header: usize, segment: usize) {
    virtio[0] |= NEEDS_CHECKSUM;
    if segment == 0 {
        virtio[1] = 0;
    }
    virtio[4..6].copy_from_slice(&(segment as u16).to_ne_bytes());
    virtio[6..8].copy_from_slice(&(ip_header as u16).to_ne_bytes());
    virtio[8..10].copy_from_slice(&16_u16.to_ne_bytes());
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Sum of big-endian words, for the Internet checksum (RFC 1071). At most 64 KiB, so it does not overflow.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A packet as the kernel hands it over.
    pub(crate) fn packet(destination: Ipv4Addr, protocol: u8, rest: &[u8], segment: u16) -> Vec<u8> {
        let mut bytes = vec![0; VIRTIO + 20];
        if segment > 0 {
            bytes[..2].copy_from_slice(&[NEEDS_CHECKSUM, GSO_TCP4]);
            bytes[4..6].copy_from_slice(&segment.to_ne_bytes());
            bytes[6..8].copy_from_slice(&20_u16.to_ne_bytes());
            bytes[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        }
        let ip = &mut bytes[VIRTIO..];
        ip[0] = 0x45;
        put_u16(ip, 2, (20 + rest.len()) as u16);
        put_u16(ip, 4, 0xfffe);
        (ip[8], ip[9]) = (64, protocol);
        ip[12..16].copy_from_slice(&[10, 42, 0, 1]);
        ip[16..20].copy_from_slice(&destination.octets());
        let checksum = !fold(sum(ip));
        put_u16(ip, 10, checksum);
        bytes.extend_from_slice(rest);
        bytes
    }

    /// A TCP super-packet with the timestamp option, whose flags are CWR, ACK, PSH and FIN.
    fn super_packet(payload: &[u8], segment: u16) -> Vec<u8> {
        let mut tcp = vec![0; 32];
        tcp[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        (tcp[12], tcp[13]) = (8 << 4, 0x99);
        tcp.extend_from_slice(payload);
        packet(Ipv4Addr::new(10, 42, 0, 2), TCP, &tcp, segment)
    }

    fn part_bytes(packet: &Packet, window: Window) -> Vec<u8> {
        packet
            .part(window)
            .map_or_else(|| packet.bytes().to_vec(), |part| [part.headers(), part.payload(packet)].concat())
    }

    /// What a network card does with a packet whose checksum is left to it; the reference for what we write.
    fn complete(bytes: &[u8]) -> Vec<u8> {
        let start = usize::from(u16::from_ne_bytes([bytes[6], bytes[7]]));
        let offset = usize::from(u16::from_ne_bytes([bytes[8], bytes[9]]));
        let mut ip = bytes[VIRTIO..].to_vec();
        let checksum = !fold(sum(&ip[start..]));
        put_u16(&mut ip, start + offset, checksum);
        ip
    }

    fn check_segment(ip: &[u8], number: usize, sequence: u32, last: bool) {
        assert_eq!(usize::from(u16_at(ip, 2)), ip.len(), "the length is right");
        assert_eq!(fold(sum(&ip[..20])), 0xffff, "the IP checksum is right");
        assert_eq!(u16_at(ip, 4), 0xfffe_u16.wrapping_add(number as u16));
        assert_eq!(u32_at(ip, 24), sequence);
        assert_eq!(ip[33] & FIN_PSH != 0, last, "only the last segment says end");
        assert_eq!(ip[33] & CWR != 0, number == 0, "only the first says window reduced");
        assert_ne!(ip[33] & 0x10, 0, "all acknowledge");
        let length = (ip.len() - 20) as u32;
        assert_eq!(fold(sum(&ip[12..20]) + u32::from(TCP) + length + sum(&ip[20..])), 0xffff);
    }

    proptest! {
        #[test]
        fn windows_of_one_segment_are_what_a_card_would_send(
            payload in proptest::collection::vec(any::<u8>(), 1..4000),
            segment in 1..1448_u16,
        ) {
            let packet = Packet::read(&super_packet(&payload, segment), &Account::default()).unwrap();
            let segments = payload.len().div_ceil(usize::from(segment));
            prop_assert_eq!(packet.whole().count as usize, segments);
            prop_assume!(segments > 1);
            let mut wire = 0;
            for (number, content) in payload.chunks(usize::from(segment)).enumerate() {
                let window = Window { first: number as u32, count: 1 };
                let bytes = part_bytes(&packet, window);
                prop_assert_eq!(bytes[1], 0, "one segment is no super-packet");
                let ip = complete(&bytes);
                prop_assert_eq!(&ip[52..], content);
                let sequence = u32::MAX.wrapping_add((number * usize::from(segment)) as u32);
                check_segment(&ip, number, sequence, number + 1 == segments);
                prop_assert_eq!(packet.wire_bytes(window), ip.len() as u64 + FRAME_OVERHEAD);
                wire += packet.wire_bytes(window);
            }
            prop_assert_eq!(packet.wire_bytes(packet.whole()), wire);
        }

        #[test]
        fn windows_of_windows_are_windows(
            payload in proptest::collection::vec(any::<u8>(), 600..4000),
            segment in 50..200_u16,
            cut in any::<proptest::sample::Index>(),
        ) {
            let account = Account::default();
            let packet = Packet::read(&super_packet(&payload, segment), &account).unwrap();
            let count = 1 + cut.index(packet.whole().count as usize - 1) as u32;
            let head = part_bytes(&packet, Window { first: 0, count });
            let head = Packet::read(&head, &account).unwrap();
            prop_assert_eq!(head.whole(), Window { first: 0, count });
            for first in 0..count {
                let window = Window { first, count: 1 };
                prop_assert_eq!(complete(&part_bytes(&head, window)), complete(&part_bytes(&packet, window)));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), first in 0..9_u32, count in 1..9_u32) {
            if let Some(packet) = Packet::read(&bytes, &Account::default()) {
                let whole = packet.whole();
                let first = first.min(whole.count - 1);
                let window = Window { first, count: count.min(whole.count - first) };
                part_bytes(&packet, window);
                prop_assert!(packet.wire_bytes(window) >= 20 + FRAME_OVERHEAD);
            }
        }
    }

    #[test]
    fn packets_are_accounted_for() {
        let account = Account::default();
        let bytes = packet(Ipv4Addr::BROADCAST, 17, &[0; 8], 0);
        let read = Packet::read(&bytes, &account).unwrap();
        assert_eq!((account.get(), read.destination()), (bytes.len(), Ipv4Addr::BROADCAST));
        drop(read);
        assert_eq!(account.get(), 0);
        assert!(Packet::read(&[0; 40], &account).is_none(), "IP version 0");
        assert_eq!(account.get(), 0);
    }
}
