//! Which number comes next, given a seed? The same on every machine and in every version.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): 64 bits of state, any
//! seed is good, no two of its 2^64 outputs are alike. For experiments and baselines, never for secrets.

/// Odd, and without a pattern: the golden ratio.
pub(crate) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer: numbers that differ little become numbers that differ in half of their bits, no two the same.
pub(crate) fn scattered(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        scattered(self.0)
    }

    /// One of `0..count`, each as likely but for `count` in 2^64; 0 where there is nothing to choose.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.bits()) * count as u128) >> 64) as usize
    }

    /// A number in `[from, to)`.
    pub(crate) fn between(&mut self, from: f64, to: f64) -> f64 {
        // The upper 53 bits fill the mantissa.
        let part = (self.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        from + (to - from) * part
    }

    /// Any order, each as likely (Fisher, Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut random = Random::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn choices_stay_in_their_range_and_reach_all_of_it() {
        let mut random = Random::new(7);
        let mut seen = [0; 5];
        for _ in 0..500 {
            seen[random.below(5)] += 1;
            assert!((100.0..1000.0).contains(&random.between(100.0, 1000.0)));
        }
        assert!(seen.iter().all(|&count| count > 60), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn a_shuffle_keeps_all_items_and_depends_on_the_seed_alone() {
        let shuffled = |seed| {
            let mut items: Vec<usize> = (0..20).collect();
            Random::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
