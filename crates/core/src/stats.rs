//! Statistics: requested <= allocated <= active <= reserved, with peaks and totals (I8).

/// One quantity over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Gauge {
    /// Now.
    pub current: u64,
    /// The largest it ever was, or since the peaks were reset.
    pub peak: u64,
    /// Sum of all that was ever added. What was taken away is this less `current`.
    pub total: u64,
}

impl Gauge {
    #[inline]
    pub(crate) const fn add(&mut self, amount: u64) {
        self.current += amount;
        self.total += amount;
        if self.current > self.peak {
            self.peak = self.current;
        }
    }

    #[inline]
    pub(crate) const fn take(&mut self, amount: u64) {
        debug_assert!(amount <= self.current);
        self.current -= amount;
    }

    pub(crate) const fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

/// Statistics of one class, or of both together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SizeClassStats {
    /// Bytes the program asked for, of blocks that are live or pending.
    pub requested_bytes: Gauge,
    /// Bytes of live blocks, after rounding.
    pub allocated_bytes: Gauge,
    /// Bytes of live and pending blocks.
    pub active_bytes: Gauge,
    /// Physical bytes held from the driver.
    pub reserved_bytes: Gauge,
    /// Number of live blocks.
    pub allocations: Gauge,
    /// Number of live and pending blocks.
    pub active_blocks: Gauge,
    /// Number of segments.
    pub segments: Gauge,
}

impl SizeClassStats {
    pub(crate) const fn gauges(&self) -> [Gauge; 7] {
        [
            self.requested_bytes,
            self.allocated_bytes,
            self.active_bytes,
            self.reserved_bytes,
            self.allocations,
            self.active_blocks,
            self.segments,
        ]
    }
}

/// How often a request that its own free list could not serve was answered in which way: what the
/// price of memory came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Choices {
    /// Memory was created.
    pub growths: u64,
    /// Free granules were remapped.
    pub remaps: u64,
    /// The stream was made to wait for others.
    pub waits: u64,
}

/// Statistics of a heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Both classes together. Reserved bytes count idle granules, which belong to no class.
    pub all: SizeClassStats,
    /// Small and large, by `SizeClass as usize`.
    pub classes: [SizeClassStats; 2],
    /// Blocks that were taken from another stream's free list.
    pub cross_stream_reuses: u64,
    /// Granules that were taken from free blocks to back others.
    pub granule_remaps: u64,
    /// Bytes freed, but quarantined because their last use could not be recorded.
    pub quarantined_bytes: u64,
    /// Requests that had memory given back before they were served or refused.
    pub retries: u64,
    /// What was chosen with room to spare, where time counts more than memory.
    pub with_room: Choices,
    /// What was chosen without, where memory counts more than time.
    pub under_pressure: Choices,
    /// How often the device was asked how much of it is free.
    pub device_looks: u64,
    /// Handles of which what was live got other memory behind its addresses.
    pub moves: u64,
    /// How many bytes were copied for that.
    pub moved_bytes: u64,
    /// Bytes that are in the host's memory until they come back, for which as many of the device
    /// are kept: they count as reserved.
    pub on_host_bytes: u64,
}

/// What a heap has mapped away from home, and what is pinned, at this moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RemapStats {
    /// Size of a granule in bytes.
    pub granule_bytes: u64,
    /// Granules that are mapped away from home and in use there.
    pub remapped_granules: u64,
    /// Mappings beyond homes: of windows, those in use and the idle ones.
    pub aliases: u64,
    /// Bytes of the handles that are pinned, in part or in whole.
    pub pinned_bytes: u64,
    /// Bytes of whole granules that are free, of handles that live blocks have the rest of: what
    /// moves can make of use.
    pub beside_live_bytes: u64,
}

impl RemapStats {
    /// Addresses that lead to memory which backs others: homes of remapped granules and idle
    /// windows, in bytes. Each mapping beyond a home leaves one such page.
    pub const fn alias_bytes(&self) -> u64 {
        self.aliases * self.granule_bytes
    }
}
