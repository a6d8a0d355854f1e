//! Pseudorandom sizes, the same in each run.

/// Knuth's linear congruential generator (MMIX), its upper bits.
pub struct Shapes(u64);

impl Shapes {
    pub fn new() -> Self {
        Self(7)
    }

    /// At least `least`, less than `end`.
    pub fn next(&mut self, least: usize, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (self.0 >> 33) as usize % (end - least)
    }
}
