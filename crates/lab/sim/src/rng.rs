//! [`Rng`]: the seeded generator behind every random choice of a simulation (SplitMix64).
//!
//! Own code, because a run must replay from one `u64` for as long as the project lives: a library
//! is free to change its algorithm.

/// A small deterministic generator. Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator that always gives the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 when `limit` is 0. Multiply and shift: the bias is below 2^-32
    /// for the limits of a simulation.
    pub const fn below(&mut self, limit: u64) -> u64 {
        ((self.next_u64() as u128 * limit as u128) >> 64) as u64
    }

    /// A number from 0 to `last`, both included.
    pub const fn up_to(&mut self, last: u64) -> u64 {
        if last == u64::MAX { self.next_u64() } else { self.below(last + 1) }
    }

    /// True in `percent` of 100 cases.
    pub const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of the items; `None` when there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// A generator of its own for one part of a run, so that the numbers of the parts do not
    /// depend on each other.
    #[must_use]
    pub const fn split(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn equal_seeds_give_the_published_splitmix64_numbers() {
        let mut rng = Rng::new(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.next_u64(), 0x6e78_9e6a_a1b9_65f4);
        assert_ne!(Rng::new(1).next_u64(), Rng::new(2).next_u64());
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut rng = Rng::new(7);
        let mut seen = [0_u32; 5];
        for _ in 0..1000 {
            seen[rng.below(5) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.up_to(0), 0);
        assert!(rng.pick::<u8>(&[]).is_none());
        assert_eq!(rng.pick(&[9]), Some(&9));
        assert!(!rng.chance(0) && rng.chance(100));
    }

    #[test]
    fn a_split_generator_does_not_depend_on_how_far_its_sibling_ran() {
        let (mut one, mut two) = (Rng::new(3), Rng::new(3));
        let (mut first, _) = (one.split(), one.split());
        let mut same = two.split();
        let expected: Vec<u64> = (0..4).map(|_| first.next_u64()).collect();
        let actual: Vec<u64> = (0..4).map(|_| same.next_u64()).collect();
        assert_eq!(actual, expected);
    }
}
