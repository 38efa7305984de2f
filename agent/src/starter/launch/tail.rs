//! What was written last?

use std::collections::VecDeque;

/// What is kept of a stream: enough for the messages of a launcher whose every rank complains.
pub(super) const TAIL_BYTES: usize = 64 << 10;

/// The last [`TAIL_BYTES`] of a stream, and how long it is in all.
#[derive(Debug, Default)]
pub(super) struct Tail {
    bytes: VecDeque<u8>,
    written: u64,
}

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        let kept = &bytes[bytes.len().saturating_sub(TAIL_BYTES)..];
        let surplus = (self.bytes.len() + kept.len()).saturating_sub(TAIL_BYTES);
        self.bytes.drain(..surplus);
        self.bytes.extend(kept);
    }

    /// Bytes written since the beginning.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// What is kept of what came after the first `seen` bytes.
    pub(super) fn since(&self, seen: u64) -> Vec<u8> {
        let unseen = usize::try_from(self.written.saturating_sub(seen)).unwrap_or(usize::MAX);
        let skipped = self.bytes.len().saturating_sub(unseen);
        self.bytes.range(skipped..).copied().collect()
    }

    /// All that is kept.
    pub(super) fn kept(&self) -> Vec<u8> {
        self.since(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_end_of_what_was_written(lengths in proptest::collection::vec(0_usize..80_000, 0..4), seen in 0_u64..200_000) {
            let mut tail = Tail::default();
            let mut all = Vec::new();
            for length in lengths {
                let piece: Vec<u8> = (0..length).map(|at| (at * 7 + all.len()) as u8).collect();
                tail.push(&piece);
                all.extend_from_slice(&piece);
                prop_assert!(tail.kept().len() <= TAIL_BYTES);
            }
            prop_assert_eq!(tail.written(), all.len() as u64);
            prop_assert_eq!(&tail.kept()[..], &all[all.len().saturating_sub(TAIL_BYTES)..]);
            let since = tail.since(seen);
            let unseen = all.len().saturating_sub(seen as usize);
            prop_assert_eq!(since.len(), unseen.min(TAIL_BYTES));
            prop_assert!(all.ends_with(&since));
        }
    }
}
