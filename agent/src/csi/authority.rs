//! How can kubelet, whose requests name a socket file as their host, talk to a server that checks host names?
//!
//! kubelet opens a registration socket by its path, and gRPC for Go then sends the escaped path as HTTP/2's `:authority`,
//! `%2Fvar%2Flib%2Fkubelet%2F…`. That is no authority by RFC 3986 (`%` may stand in a user's name or an IPv6 zone only),
//! and the HTTP/2 library under tonic ends the stream with a protocol error before any service sees it. Other plugins in
//! Rust carry a patched copy of that library. Nothing here looks at the authority, so this replaces the value in the bytes
//! on their way in: frames are told apart, and of the header blocks only the shape is read (RFC 7541 §6), which needs
//! neither its tables nor its Huffman code.
//!
//! The decoder's dynamic table then holds the replacement where the client's holds the original. References count from the
//! newest entry and the replacement is never longer, so the decoder keeps at least what the client believes it has.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

/// What stands in for the path.
const REPLACEMENT: &[u8] = b"localhost";

/// Length of the client's preface, `PRI * HTTP/2.0…`, which comes before the first frame.
const PREFACE: usize = 24;

/// Length of a frame's header: length (3), type, flags, stream (4).
const FRAME_HEADER: usize = 9;

/// Longest frame: what a server that announces no other bound takes.
const MAX_FRAME: usize = 16_384;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Index of `:authority` without a value in HPACK's static table.
const AUTHORITY: usize = 1;

/// How much is read at once.
const BLOCK: usize = 4096;

/// A connection whose incoming requests name `localhost`.
#[derive(Debug)]
pub(super) struct Neutral {
    stream: UnixStream,
    filter: Filter,
}

impl Neutral {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, filter: Filter::default() }
    }
}

impl Connected for Neutral {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Neutral {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.filter.give(buffer) || buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let mut block = [0; BLOCK];
            let mut read = ReadBuf::new(&mut block);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                // A frame that was cut is nobody's.
                return Poll::Ready(Ok(()));
            }
            self.filter.take(read.filled())?;
        }
    }
}

impl AsyncWrite for Neutral {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Bytes on their way: at most one frame waits to be whole.
#[derive(Debug, Default)]
struct Filter {
    started: bool,
    waiting: Vec<u8>,
    done: Vec<u8>,
    given: usize,
}

impl Filter {
    /// Hands out what is ready; false if nothing is.
    fn give(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let rest = &self.done[self.given..];
        let n = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..n]);
        self.given += n;
        if self.given == self.done.len() {
            self.done.clear();
            self.given = 0;
        }
        n > 0
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.waiting.extend_from_slice(bytes);
        let mut rest = self.waiting.as_slice();
        if !self.started {
            let Some((preface, after)) = rest.split_at_checked(PREFACE) else { return Ok(()) };
            self.done.extend_from_slice(preface);
            self.started = true;
            rest = after;
        }
        while let Some((frame, after)) = split_frame(rest)? {
            pass(frame, &mut self.done)?;
            rest = after;
        }
        let kept = self.waiting.len() - rest.len();
        self.waiting.drain(..kept);
        Ok(())
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The first frame and what follows it, if it is whole.
fn split_frame(bytes: &[u8]) -> io::Result<Option<(&[u8], &[u8])>> {
    let [a, b, c, ..] = *bytes else { return Ok(None) };
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    if length > MAX_FRAME {
        return Err(invalid("a frame longer than was agreed"));
    }
    Ok(bytes.split_at_checked(FRAME_HEADER + length))
}

/// Appends a frame as the server shall see it.
fn pass(frame: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let (header, payload) = frame.split_at(FRAME_HEADER);
    let (kind, flags) = (header[3], header[4]);
    if kind == CONTINUATION || kind == HEADERS && flags & END_HEADERS == 0 {
        // Would have to be put together first; kubelet's headers are a hundredth of a frame.
        return Err(invalid("headers in more than one frame"));
    }
    let rewritten = if kind == HEADERS { rewrite_headers(flags, payload) } else { None };
    let payload = rewritten.as_deref().unwrap_or(payload);
    let length = payload.len();
    out.extend_from_slice(&[(length >> 16) as u8, (length >> 8) as u8, length as u8]);
    out.extend_from_slice(&header[3..]);
    out.extend_from_slice(payload);
    Ok(())
}

/// The payload of a HEADERS frame with another authority; none if there is nothing to replace, or if it is not well
/// formed, which is for the server to say.
fn rewrite_headers(flags: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let mut before = 0;
    let mut after = 0;
    if flags & PADDED != 0 {
        after = usize::from(*payload.first()?);
        before += 1;
    }
    if flags & PRIORITY != 0 {
        before += 5;
    }
    let end = payload.len().checked_sub(after)?;
    let (value, from) = find_authority(payload.get(before..end)?)?;
    let (from, to) = (before + from, before + value.end);
    let mut out = payload[..from].to_vec();
    out.push(REPLACEMENT.len() as u8);
    out.extend_from_slice(REPLACEMENT);
    out.extend_from_slice(&payload[to..]);
    Some(out)
}

/// Where in a header block the authority's value is: the end of its string, and the first byte of the string's length.
/// None if it is not there as a literal, or not longer than its replacement.
fn find_authority(block: &[u8]) -> Option<(Text, usize)> {
    let mut at = 0;
    while at < block.len() {
        let first = block[at];
        if first & 0x80 != 0 {
            // An entry of a table.
            (_, at) = integer(block, at, 7)?;
            continue;
        }
        if first & 0xe0 == 0x20 {
            // A new size for the table.
            (_, at) = integer(block, at, 5)?;
            continue;
        }
        // A literal: kept in the table (6 bits), or not (4 bits).
        let (index, name) = integer(block, at, if first & 0x40 != 0 { 6 } else { 4 })?;
        let start = if index == 0 { text(block, name)?.end } else { name };
        let value = text(block, start)?;
        if index == AUTHORITY {
            return (value.least >= REPLACEMENT.len()).then_some((value, start));
        }
        at = value.end;
    }
    None
}

/// A string of a header block.
struct Text {
    end: usize,
    /// It is at least that long when decoded.
    least: usize,
}

fn text(block: &[u8], at: usize) -> Option<Text> {
    let huffman = block.get(at)? & 0x80 != 0;
    let (length, start) = integer(block, at, 7)?;
    let end = start.checked_add(length).filter(|end| *end <= block.len())?;
    // The longest code has 30 bits.
    Some(Text { end, least: if huffman { length * 8 / 30 } else { length } })
}

/// An integer with a prefix of so many bits (RFC 7541 §5.1), and where it ends.
fn integer(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let most = (1usize << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & most;
    let mut at = at + 1;
    if value < most {
        return Some((value, at));
    }
    // Three bytes more hold any length that a frame can have.
    for shift in [0, 7, 14] {
        let byte = *block.get(at)?;
        at += 1;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, at));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![0, (payload.len() >> 8) as u8, payload.len() as u8, kind, flags, 0, 0, 0, 1];
        out.extend_from_slice(payload);
        out
    }

    /// `:method: POST`, `:authority:` the path as a literal to be kept, a further literal with a name.
    fn block(authority: &[u8]) -> Vec<u8> {
        let mut out = vec![0x83, 0x41, authority.len() as u8];
        out.extend_from_slice(authority);
        out.extend_from_slice(&[0x40, 2, b't', b'e', 8]);
        out.extend_from_slice(b"trailers");
        out
    }

    fn filtered(input: &[u8], piece: usize) -> io::Result<Vec<u8>> {
        let mut filter = Filter::default();
        let mut out = Vec::new();
        for bytes in input.chunks(piece) {
            filter.take(bytes)?;
            let mut space = [0; 7];
            loop {
                let mut buffer = ReadBuf::new(&mut space);
                if !filter.give(&mut buffer) {
                    break;
                }
                out.extend_from_slice(buffer.filled());
            }
        }
        Ok(out)
    }

    fn connection(headers: &[u8], flags: u8) -> Vec<u8> {
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        out.extend(frame(4, 0, &[]));
        out.extend(frame(HEADERS, flags, headers));
        out.extend(frame(0, 1, b"\0\0\0\0\0"));
        out
    }

    const PATH: &[u8] = b"%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fx.sock";

    #[test]
    fn a_path_becomes_localhost_however_the_bytes_arrive() {
        for piece in [1, 2, 3, 10, 10_000] {
            let out = filtered(&connection(&block(PATH), END_HEADERS), piece).unwrap();
            assert_eq!(out, connection(&block(b"localhost"), END_HEADERS), "{piece}");
        }
    }

    #[test]
    fn padding_and_priority_stay() {
        let dress = |block: Vec<u8>| [&[3, 0, 0, 0, 0, 16][..], &block, &[0, 0, 0]].concat();
        let flags = END_HEADERS | PADDED | PRIORITY;
        let out = filtered(&connection(&dress(block(PATH)), flags), 100).unwrap();
        assert_eq!(out, connection(&dress(block(b"localhost")), flags));
    }

    #[test]
    fn what_is_short_or_in_the_table_stays() {
        for headers in [block(b"node"), vec![0x83, 0xc0, 0x84]] {
            let input = connection(&headers, END_HEADERS);
            assert_eq!(filtered(&input, 5).unwrap(), input);
        }
    }

    #[test]
    fn a_frame_without_end_is_refused_before_it_is_kept() {
        let mut input = connection(&[], END_HEADERS);
        input.extend_from_slice(&[1, 0, 0, 0]);
        assert!(filtered(&input, 1000).is_err());
        assert!(filtered(&connection(&block(PATH), 0), 1000).is_err());
    }

    proptest! {
        /// Whatever comes in: no panic, and nothing but header frames changes.
        #[test]
        fn any_bytes_pass(bytes in proptest::collection::vec(any::<u8>(), 0..600), piece in 1usize..50) {
            let mut input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            input.extend(frame(0, 0, &bytes));
            prop_assert_eq!(&filtered(&input, piece).unwrap(), &input);
            input.extend(frame(HEADERS, END_HEADERS | (bytes.len() as u8 & 0x28), &bytes));
            let _ = filtered(&input, piece);
            let _ = filtered(&bytes, piece);
        }
    }
}
