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
    pub(crate) fn gauges_mut(&mut self) -> [&mut Gauge; 7] {
        [
            &mut self.requested_bytes,
            &mut self.allocated_bytes,
            &mut self.active_bytes,
            &mut self.reserved_bytes,
            &mut self.allocations,
            &mut self.active_blocks,
            &mut self.segments,
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
}

impl Stats {
    /// Sets every peak to its current value.
    pub(crate) fn reset_peaks(&mut self) {
        for class in std::iter::once(&mut self.all).chain(&mut self.classes) {
            class.gauges_mut().into_iter().for_each(Gauge::reset_peak);
        }
    }

    #[inline]
    pub(crate) fn allocate(&mut self, class: usize, requested: u64, bytes: u64) {
        for stats in [&mut self.all, &mut self.classes[class]] {
            stats.requested_bytes.add(requested);
            stats.allocated_bytes.add(bytes);
            stats.active_bytes.add(bytes);
            stats.allocations.add(1);
            stats.active_blocks.add(1);
        }
    }

    /// The program gave the block back.
    #[inline]
    pub(crate) fn free(&mut self, class: usize, bytes: u64) {
        for stats in [&mut self.all, &mut self.classes[class]] {
            stats.allocated_bytes.take(bytes);
            stats.allocations.take(1);
        }
    }

    /// Two live blocks became one.
    pub(crate) fn join(&mut self, class: usize) {
        for stats in [&mut self.all, &mut self.classes[class]] {
            stats.allocations.take(1);
            stats.active_blocks.take(1);
        }
    }

    /// One live block became two.
    pub(crate) fn cut(&mut self, class: usize) {
        for stats in [&mut self.all, &mut self.classes[class]] {
            stats.allocations.add(1);
            stats.active_blocks.add(1);
        }
    }

    /// No stream uses the block any more.
    #[inline]
    pub(crate) fn complete(&mut self, class: usize, requested: u64, bytes: u64) {
        for stats in [&mut self.all, &mut self.classes[class]] {
            stats.requested_bytes.take(requested);
            stats.active_bytes.take(bytes);
            stats.active_blocks.take(1);
        }
    }
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
}

impl RemapStats {
    /// Addresses that lead to memory which backs others: homes of remapped granules and idle
    /// windows, in bytes. Each mapping beyond a home leaves one such page.
    pub const fn alias_bytes(&self) -> u64 {
        self.aliases * self.granule_bytes
    }
}
