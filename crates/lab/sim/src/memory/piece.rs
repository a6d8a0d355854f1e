//! [`Piece`]: where memory lies, by address and by physical byte.

/// The number of a physical object's first byte; the following bytes follow.
pub(crate) type Physical = u64;

/// A run of addresses and the physical bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) physical: Physical,
    pub(crate) bytes: u64,
}
