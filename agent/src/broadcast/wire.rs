//! How do entries and chunks become messages of at most 64 KiB, and back?

use bytes::Bytes;
use gridcast_core::broadcast::dataset::{Entry, EntryKind, Extent};
use gridcast_proto::v1::{self, push_message::Message};
use prost::Message as _;

use super::MAX_MESSAGE_BYTES;
use super::failure::Failure;

/// Prefix of a gRPC message.
const PREFIX_BYTES: usize = 5;
/// Most payload of a `Data` message: tags, lengths, chunk and offset take at most 30 bytes.
pub(crate) const MAX_PAYLOAD_BYTES: usize = MAX_MESSAGE_BYTES - 64;
/// Extents in one wire entry, at most 22 bytes each: with a path and a target of 4 KiB each an entry stays below 60 KiB.
const MAX_WIRE_EXTENTS: usize = 2000;
/// Room for the entries of one message, without tags of the message around them.
const ENTRIES_BUDGET: usize = MAX_MESSAGE_BYTES - PREFIX_BYTES - 32;

/// A message of a hop.
pub(crate) fn message(message: Message) -> v1::PushMessage {
    v1::PushMessage { message: Some(message) }
}

/// Entries as messages, the last one marked. There is always at least one.
pub(crate) fn entry_messages(entries: &[Entry]) -> Vec<v1::Entries> {
    let mut messages = Vec::new();
    let mut batch = v1::Entries::default();
    let mut bytes = 0;
    for wire in entries.iter().flat_map(wire_entries) {
        // Tag and length of an embedded message: at most 4 bytes below 64 KiB.
        let length = wire.encoded_len() + 4;
        if bytes + length > ENTRIES_BUDGET {
            messages.push(std::mem::take(&mut batch));
            bytes = 0;
        }
        bytes += length;
        batch.entries.push(wire);
    }
    batch.last = true;
    messages.push(batch);
    messages
}

fn wire_entries(entry: &Entry) -> Vec<v1::Entry> {
    let mut wire = v1::Entry {
        kind: 0,
        path: Bytes::copy_from_slice(&entry.path),
        mode: entry.mode,
        mtime_seconds: entry.mtime_seconds,
        mtime_nanos: entry.mtime_nanos,
        ..v1::Entry::default()
    };
    match &entry.kind {
        EntryKind::Directory => wire.set_kind(v1::EntryKind::Directory),
        EntryKind::Symlink { target } => {
            wire.set_kind(v1::EntryKind::Symlink);
            wire.target = Bytes::copy_from_slice(target);
        }
        EntryKind::File { size, extents } => {
            wire.set_kind(v1::EntryKind::File);
            wire.size = *size;
            let mut parts: Vec<v1::Entry> = extents
                .chunks(MAX_WIRE_EXTENTS)
                .map(|part| v1::Entry {
                    extents: part.iter().map(wire_extent).collect(),
                    more: true,
                    ..wire.clone()
                })
                .collect();
            if let Some(last) = parts.last_mut() {
                last.more = false;
                return parts;
            }
        }
    }
    vec![wire]
}

fn wire_extent(extent: &Extent) -> v1::Extent {
    v1::Extent { offset: extent.offset, length: extent.length }
}

/// Puts wire entries together again. Bounds are those of `Admission`, which sees every entry, and of a part that must
/// belong to the file before it.
#[derive(Debug, Default)]
pub(crate) struct EntryParser {
    unfinished: Option<Entry>,
}

impl EntryParser {
    /// The entry that `wire` completes; none while more of its extents follow. `max_extents` bounds a file in parts.
    pub(crate) fn parse(&mut self, wire: &v1::Entry, max_extents: u64) -> Result<Option<Entry>, Failure> {
        let extents = || wire.extents.iter().map(|part| Extent { offset: part.offset, length: part.length });
        let entry = match self.unfinished.take() {
            Some(mut entry) => {
                let EntryKind::File { extents: known, .. } = &mut entry.kind else {
                    return Err(Failure::corrupt("an entry in parts is not a file"));
                };
                if entry.path != wire.path || known.len() as u64 > max_extents {
                    return Err(Failure::corrupt(format!(
                        "the extents of `{}` are not complete",
                        entry.display_path()
                    )));
                }
                known.extend(extents());
                entry
            }
            None => Entry {
                path: wire.path.to_vec(),
                kind: match wire.kind() {
                    v1::EntryKind::Directory => EntryKind::Directory,
                    v1::EntryKind::File => EntryKind::File { size: wire.size, extents: extents().collect() },
                    v1::EntryKind::Symlink => EntryKind::Symlink { target: wire.target.to_vec() },
                    v1::EntryKind::Unspecified => {
                        return Err(Failure::corrupt(format!("an entry of unknown kind {}", wire.kind)));
                    }
                },
                mode: wire.mode,
                mtime_seconds: wire.mtime_seconds,
                mtime_nanos: wire.mtime_nanos,
            },
        };
        if wire.more {
            self.unfinished = Some(entry);
            return Ok(None);
        }
        Ok(Some(entry))
    }

    /// Whether no entry is half here.
    pub(crate) fn is_complete(&self) -> bool {
        self.unfinished.is_none()
    }
}

/// A BLAKE3 hash from the wire.
pub(crate) fn hash(bytes: &[u8]) -> Result<blake3::Hash, Failure> {
    let bytes: [u8; 32] =
        bytes.try_into().map_err(|_| Failure::corrupt(format!("a hash of {} bytes, not 32", bytes.len())))?;
    Ok(blake3::Hash::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(entries: &[Entry]) -> Vec<Entry> {
        let mut parser = EntryParser::default();
        let messages = entry_messages(entries);
        assert!(messages[..messages.len() - 1].iter().all(|message| !message.last));
        assert!(messages.last().unwrap().last);
        let mut back = Vec::new();
        for batch in messages {
            let whole = message(Message::Entries(batch.clone()));
            assert!(whole.encoded_len() + PREFIX_BYTES <= MAX_MESSAGE_BYTES, "{}", whole.encoded_len());
            for wire in &batch.entries {
                back.extend(parser.parse(wire, u64::MAX).unwrap());
            }
        }
        assert!(parser.is_complete());
        back
    }

    #[test]
    fn a_file_of_many_extents_travels_in_parts() {
        let extents = (0..50_000).map(|at| Extent { offset: at << 45, length: (1 << 44) + at }).collect();
        let file = Entry {
            path: vec![b'x'; 4095],
            kind: EntryKind::File { size: u64::MAX, extents },
            mode: 0o644,
            mtime_seconds: i64::MIN,
            mtime_nanos: 999_999_999,
        };
        assert_eq!(round_trip(std::slice::from_ref(&file)), [file]);
    }

    #[test]
    fn a_full_data_message_stays_within_the_limit() {
        let data = v1::Data { chunk: u64::MAX, offset: u32::MAX, payload: vec![0; MAX_PAYLOAD_BYTES].into() };
        assert!(message(Message::Data(data)).encoded_len() + PREFIX_BYTES <= MAX_MESSAGE_BYTES);
    }

    fn kind() -> impl Strategy<Value = EntryKind> {
        let bytes = || prop::collection::vec(any::<u8>(), 1..300);
        prop_oneof![
            Just(EntryKind::Directory),
            bytes().prop_map(|target| EntryKind::Symlink { target }),
            (any::<u64>(), prop::collection::vec((any::<u64>(), any::<u64>()), 0..50)).prop_map(
                |(size, extents)| EntryKind::File {
                    size,
                    extents: extents.into_iter().map(|(offset, length)| Extent { offset, length }).collect(),
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn entries_survive_the_wire(
            entries in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..400), kind(), any::<u32>(), any::<i64>(), any::<u32>()), 0..400)
        ) {
            let entries: Vec<Entry> = entries
                .into_iter()
                .map(|(path, kind, mode, mtime_seconds, mtime_nanos)| Entry { path, kind, mode, mtime_seconds, mtime_nanos })
                .collect();
            prop_assert_eq!(round_trip(&entries), entries);
        }
    }
}
