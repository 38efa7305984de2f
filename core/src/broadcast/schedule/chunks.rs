//! Which chunks? A set of chunk numbers, one bit each.

/// A set of the chunks `0..count`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    words: Vec<u64>,
    count: u32,
    held: u32,
}

const BITS: u32 = u64::BITS;

impl Chunks {
    /// None of `count` chunks.
    pub fn none(count: u32) -> Self {
        Self { words: vec![0; count.div_ceil(BITS) as usize], count, held: 0 }
    }

    /// All of `count` chunks.
    pub fn all(count: u32) -> Self {
        let mut words = vec![u64::MAX; (count / BITS) as usize];
        if !count.is_multiple_of(BITS) {
            words.push((1 << (count % BITS)) - 1);
        }
        Self { words, count, held: count }
    }

    /// How many chunks there can be.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How many are in the set.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Whether none is missing.
    pub fn complete(&self) -> bool {
        self.held == self.count
    }

    /// Whether `chunk` is in the set.
    pub fn has(&self, chunk: u32) -> bool {
        self.words.get((chunk / BITS) as usize).is_some_and(|word| word >> (chunk % BITS) & 1 == 1)
    }

    /// Adds `chunk`; false if it was there, or is none of the dataset.
    pub fn insert(&mut self, chunk: u32) -> bool {
        let new = chunk < self.count && !self.has(chunk);
        if let Some(word) = self.words.get_mut((chunk / BITS) as usize).filter(|_| new) {
            *word |= 1 << (chunk % BITS);
            self.held += 1;
        }
        new
    }

    /// Takes `chunk` out; false if it was not there.
    pub fn remove(&mut self, chunk: u32) -> bool {
        let there = self.has(chunk);
        if let Some(word) = self.words.get_mut((chunk / BITS) as usize).filter(|_| there) {
            *word &= !(1 << (chunk % BITS));
            self.held -= 1;
        }
        there
    }

    /// The chunks in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        ones(self.words.iter().copied())
    }

    /// The chunks in the set and not in `other`, ascending.
    pub fn without(&self, other: &Self) -> impl Iterator<Item = u32> {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        ones(self.words.iter().zip(others).map(|(word, other)| word & !other))
    }
}

fn ones(words: impl Iterator<Item = u64>) -> impl Iterator<Item = u32> {
    words.zip(0_u32..).flat_map(|(mut word, index)| {
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros())?;
            word &= word - 1;
            Some(index * BITS + bit)
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_set(count in 0_u32..300, steps in prop::collection::vec((any::<bool>(), 0_u32..320), 0..200)) {
            let (mut chunks, mut model) = (Chunks::none(count), BTreeSet::new());
            for (add, chunk) in steps {
                let changed = if add { chunk < count && model.insert(chunk) } else { model.remove(&chunk) };
                prop_assert_eq!(if add { chunks.insert(chunk) } else { chunks.remove(chunk) }, changed);
            }
            prop_assert_eq!(chunks.held() as usize, model.len());
            prop_assert!(chunks.iter().eq(model.iter().copied()));
            let all = Chunks::all(count);
            prop_assert!(all.complete() && all.iter().eq(0..count));
            prop_assert!(all.without(&chunks).eq((0..count).filter(|chunk| !model.contains(chunk))));
        }
    }
}
