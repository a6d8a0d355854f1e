//! [`PoolId`]: one of the two halves of a pool, for small requests or for large ones.

/// Names a pool: the dense pool number of the trace and one of its two size classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolId(u16);

impl PoolId {
    pub(super) fn new(pool: u8, is_small: bool) -> Self {
        Self(u16::from(pool) * 2 + u16::from(is_small))
    }

    pub(super) const fn is_small(self) -> bool {
        self.0 % 2 == 1
    }

    /// The dense pool number; 0 is the default pool.
    pub(super) const fn number(self) -> u8 {
        (self.0 / 2) as u8
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}
