//! An allocator's address map as plain data: what a picture or a snapshot is drawn from.
//!
//! Invariants: segments are sorted by address and do not overlap; the blocks of a segment are
//! sorted and tile it.

/// What a block is at the moment of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockState {
    /// In use by the program.
    Live,
    /// Freed by the host, but another stream may still be using it.
    Pending,
    /// Physical memory ready for the next request.
    Free,
    /// Addresses with no physical memory of their own behind them.
    Unmapped,
}

/// A contiguous piece of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutBlock {
    /// First address.
    pub address: u64,
    /// Size, in bytes.
    pub bytes: u64,
    /// What the program asked for, in bytes; 0 unless live or pending.
    pub requested_bytes: u64,
    /// Dense number of the stream it belongs to.
    pub stream: u16,
    /// What it is.
    pub state: BlockState,
}

/// A contiguous range of addresses obtained from the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutSegment {
    /// First address.
    pub address: u64,
    /// Size, in bytes, of the addresses; unmapped blocks included.
    pub bytes: u64,
    /// Dense number of the stream it belongs to.
    pub stream: u16,
    /// Dense pool number of the trace.
    pub pool: u8,
    /// Whether small requests share it (PyTorch's `small` segments).
    pub is_small: bool,
    /// Whether it grows and shrinks by mapping.
    pub is_expandable: bool,
    /// Its blocks, by address.
    pub blocks: Vec<LayoutBlock>,
}

/// All segments of one device, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The segments.
    pub segments: Vec<LayoutSegment>,
}
