//! What is held and what can still be had: statistics, snapshots, the budget, the check.

use std::io;
use std::path::Path;

use drystone_core::{
    BlockView, Broken, CrossStream, FreeError, PoolStreamStats, SegmentKind, SegmentView, Stats,
};
use drystone_driver::{DriverError, MemoryInfo};

use super::Allocator;
use crate::backend::BackendState;
use crate::budget::Budget;
use crate::neighbours::Neighbour;
use crate::options::Backend;
use crate::record::Recording;
use crate::tag::{Tag, TagStats};

impl Allocator {
    /// Statistics at this moment. Makes a driver call with backend `async` alone, and waits for
    /// none.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let kept = allocator.allocate(stream, 700)?;
    /// drop(allocator.allocate(stream, 40 << 20)?);
    /// let all = allocator.stats().all;
    /// assert_eq!((all.requested_bytes.current, all.allocated_bytes.current), (700, 1024));
    /// assert_eq!(all.requested_bytes.peak, 700 + (40 << 20));
    /// assert!(all.reserved_bytes.current >= 40 << 20); // held for the next request
    /// allocator.trim()?;
    /// assert_eq!(allocator.stats().all.reserved_bytes.current, 2 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.engine.refresh();
        self.engine.backend.read().stats()
    }

    /// Bytes of live blocks and physical bytes held, at this moment: what of [`stats`](Self::stats)
    /// can be asked after every call.
    pub fn allocated_and_reserved_bytes(&self) -> (u64, u64) {
        self.engine.refresh();
        let backend = self.engine.backend.read();
        let all = backend.stats().all;
        (all.allocated_bytes.current, all.reserved_bytes.current)
    }

    /// Sets every peak of the statistics, the accounts and the tags to its current value.
    pub fn reset_peaks(&self) {
        self.engine.refresh();
        // What is poisoned has no new ones.
        let _ = self.engine.backend.state().change(|state| state.reset_peaks());
        self.engine.tags.reset_peaks();
    }

    /// What each pool, class and stream has, and the most it had in use: those that have
    /// anything, or had since the peaks were reset. With backend `async` free memory is in no
    /// account: the driver gives it to any stream.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let kept = allocator.allocate(stream, 3 << 20)?;
    /// drop(allocator.allocate(stream, 40 << 20)?);
    /// let account = allocator.pool_stream_stats()[0];
    /// assert_eq!((account.pool, account.stream), (PoolId::DEFAULT.index(), stream.index()));
    /// assert_eq!(account.active_bytes.current, 3 << 20);
    /// assert_eq!(account.active_bytes.peak, 43 << 20);
    /// # drop(kept);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pool_stream_stats(&self) -> Vec<PoolStreamStats> {
        self.engine.backend.read().pool_stream_stats()
    }

    /// The tag of this name, made if it is new.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let [weights, kv] = ["weights", "kv"].map(|name| allocator.tag(name));
    /// let layer = allocator.allocate(stream, 96 << 20)?.tagged(&weights);
    /// let mut cache = allocator.reserve(stream, 8 << 30)?.tagged(&kv);
    /// cache.grow_to(1 << 30)?;
    /// let stats = allocator.tag_stats();
    /// assert_eq!((stats[0].bytes, stats[1].bytes), (96 << 20, 1 << 30));
    /// drop(layer);
    /// assert_eq!(allocator.tag_stats()[0].peak_bytes, 96 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tag(&self, name: &str) -> Tag {
        self.engine.tags.tag(name)
    }

    /// Counts the live block at an address under a tag until it is freed, and under no other; with
    /// `None` under none. For memory that is kept by its address: an [`Allocation`] and a
    /// [`Growable`] have methods. Nobody may free the block meanwhile.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let block = allocator.allocate_raw(PoolId::DEFAULT, stream, 3 << 20)?;
    /// allocator.tag_block(block.address, Some(&allocator.tag("kv")))?;
    /// assert_eq!(allocator.tag_stats()[0].bytes, 3 << 20);
    /// allocator.free(block.address)?;
    /// assert_eq!(allocator.tag_stats()[0].bytes, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// No live block starts there.
    ///
    /// [`Allocation`]: crate::Allocation
    /// [`Growable`]: crate::Growable
    pub fn tag_block(&self, address: u64, tag: Option<&Tag>) -> Result<(), FreeError> {
        self.engine.tag_block(address, tag)
    }

    /// The tag of the block that starts at an address, to read a [`snapshot`](Self::snapshot) by.
    pub fn tag_of(&self, address: u64) -> Option<Tag> {
        self.engine.tags.of(address)
    }

    /// What each tag has and had at most, in the order they were first named. The message of out of
    /// memory says it, too.
    pub fn tag_stats(&self) -> Vec<TagStats> {
        self.engine.tags.stats()
    }

    /// What is held at one moment, which takes time for each block: segments in address order,
    /// tiled by their blocks. Others wait while the blocks are copied, and not while they are told.
    /// With backend `async` each block is a segment of its own: what the driver holds beside them,
    /// it does not show.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, PoolId};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let block = allocator.allocate(stream, 3 << 20)?;
    /// let segments = allocator.snapshot();
    /// let mut blocks = segments.iter().flat_map(|segment| &segment.blocks);
    /// let found = blocks.find(|b| b.state == drystone::BlockState::Live);
    /// assert_eq!(found.map(|b| (b.address, b.requested_bytes)), Some((block.address(), 3 << 20)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self) -> Vec<SegmentView> {
        self.engine.backend.snapshot()
    }

    /// The live block that starts at an address.
    ///
    /// # Errors
    /// There is none.
    pub fn block_at(&self, address: u64) -> Result<BlockView, FreeError> {
        self.engine.backend.read().block_at(address)
    }

    /// The largest free block of any pool and stream, in bytes. Walks all free blocks. 0 where the
    /// driver keeps them (backend `async`).
    pub fn largest_free_bytes(&self) -> u64 {
        self.engine.backend.read().largest_free_bytes()
    }

    /// What can still be had: to size a key-value cache, or to choose a batch. Unused memory of
    /// this allocator, and what the device has free within the limit; not what neighbours hold
    /// unused, which [`available`](Self::available) adds. [`memory_info`](Self::memory_info) is the
    /// device's, of all processes, and knows nothing of memory that is unused here.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options, Prefer};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// let device = SimDevice::new(SimConfig { total_bytes: 1 << 30, ..SimConfig::default() });
    /// let options = Options::default().with_prefer(Prefer::Memory);
    /// let allocator = Allocator::new(Arc::new(device.clone()), &options)?;
    /// let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let weights = allocator.allocate(stream, 700 << 20)?;
    /// let budget = allocator.budget()?;
    /// assert!(budget.would_fit(324 << 20) && !budget.would_fit(325 << 20));
    /// drop(weights); // unused now, and as good as free on the device
    /// assert!(allocator.budget()?.would_fit(1 << 30));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The driver cannot say how much memory is free.
    pub fn budget(&self) -> Result<Budget, DriverError> {
        let free_bytes = self.engine.executor.free_bytes()?;
        let backend = self.engine.backend.read();
        let reserved_bytes = backend.stats().all.reserved_bytes.current;
        let within_limit_bytes = backend.limit_bytes().saturating_sub(reserved_bytes);
        Ok(Budget {
            unused_bytes: backend.unused_bytes(),
            largest_free_bytes: backend.largest_free_bytes(),
            device_bytes: free_bytes.min(within_limit_bytes),
            unit_bytes: backend.unit_bytes(),
        })
    }

    /// Unused memory that could go back to the device, once its last use is complete: in bytes.
    /// Walks all free blocks.
    pub fn unused_bytes(&self) -> u64 {
        self.engine.backend.read().unused_bytes()
    }

    /// Other processes of the same user on the device that hold memory by an allocator of this
    /// kind. Waits for them to say how much of it is unused, for milliseconds at most each.
    pub fn neighbours(&self) -> Vec<Neighbour> {
        self.engine.neighbours.get().map_or_else(Vec::new, |one| one.others(true))
    }

    /// What they hold unused together, in bytes.
    pub fn neighbours_unused_bytes(&self) -> u64 {
        let unused = self.neighbours().into_iter().map(|one| one.unused_bytes);
        unused.fold(0, u64::saturating_add)
    }

    /// What can be had, in bytes: free on the device, unused here, and unused at other processes of
    /// the same user on the device, which give it when it is asked for. Waits for them to say how
    /// much that is, for milliseconds at most each.
    ///
    /// # Errors
    /// The driver cannot say how much memory is free.
    pub fn available(&self) -> Result<u64, DriverError> {
        let unused_bytes = self.neighbours_unused_bytes();
        let free_bytes = self.engine.executor.free_bytes()?;
        let backend = self.engine.backend.read();
        let reserved_bytes = backend.stats().all.reserved_bytes.current;
        let within_limit_bytes = backend.limit_bytes().saturating_sub(reserved_bytes);
        let room_bytes = free_bytes.saturating_add(unused_bytes).min(within_limit_bytes);
        let available_bytes = room_bytes.saturating_add(backend.unused_bytes());
        // What others say is their word.
        Ok(available_bytes.min(self.engine.executor.driver.info().total_bytes))
    }

    /// What is left to the host, in bytes: 0 of a device that has memory of its own, or where the
    /// options say so.
    pub fn host_floor_bytes(&self) -> u64 {
        self.engine.executor.floor_bytes
    }

    /// What memory the device has. Captures do not forbid the question. Of a device whose memory is
    /// the host's, what is left to the host counts as free here, and nowhere else.
    ///
    /// # Errors
    /// The driver cannot say.
    pub fn memory_info(&self) -> Result<MemoryInfo, DriverError> {
        self.engine.executor.memory_info()
    }

    /// Finds out whether somebody in the process has reset the device (`cudaDeviceReset`). Requests
    /// that miss and trims look by themselves; from then on hits are refused, too.
    ///
    /// # Errors
    /// It was reset, and all memory is gone.
    pub fn check_context(&self) -> Result<(), DriverError> {
        self.engine.check_context()
    }

    /// Where memory comes from, except pools that say otherwise.
    pub fn backend(&self) -> Backend {
        match &self.engine.backend {
            BackendState::AsyncPools(_) => Backend::Async,
            BackendState::Heap(heap) => match heap.read().config().kind {
                SegmentKind::Mapped => Backend::Vmm,
                _ => Backend::Malloc,
            },
        }
    }

    /// When free blocks serve other streams.
    pub fn cross_stream(&self) -> CrossStream {
        match &self.engine.backend {
            BackendState::Heap(heap) => heap.read().config().cross_stream,
            BackendState::AsyncPools(_) => {
                let config = self.engine.executor.handles.lock().config;
                match (config.reuse_adds_dependencies, config.reuse_is_opportunistic) {
                    (true, _) => CrossStream::Wait,
                    (false, true) => CrossStream::Passed,
                    (false, false) => CrossStream::Never,
                }
            }
        }
    }

    /// Sets the gauges `drystone_reserved_bytes`, `drystone_active_bytes`,
    /// `drystone_allocated_bytes` and `drystone_requested_bytes` of this device, and
    /// `drystone_tag_bytes` of each tag, in the recorder that the program has installed. To be
    /// called as often as they are to be fresh.
    #[cfg(feature = "metrics")]
    pub fn emit_metrics(&self) {
        let device = self.engine.executor.driver.info().ordinal.to_string();
        let all = self.stats().all;
        let gauges = [
            ("drystone_reserved_bytes", all.reserved_bytes),
            ("drystone_active_bytes", all.active_bytes),
            ("drystone_allocated_bytes", all.allocated_bytes),
            ("drystone_requested_bytes", all.requested_bytes),
        ];
        for (name, gauge) in gauges {
            // Exact up to 8 PiB.
            metrics::gauge!(name, "device" => device.clone()).set(gauge.current as f64);
        }
        for tag in self.tag_stats() {
            let labels = [("device", device.clone()), ("tag", tag.name)];
            metrics::gauge!("drystone_tag_bytes", &labels).set(tag.bytes as f64);
        }
    }

    /// Records what is asked of the allocator from now on, and what is live, to a file that
    /// `drystone compare` reads: it says what other allocators would hold, and on what device the
    /// program would still run. A growable is written as one block that is freed and allocated
    /// anew. While it is recorded a request takes a lock more, and now and then writes to the file.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// # let name = format!("drystone-record-{}.csv", std::process::id());
    /// # let file = std::env::temp_dir().join(name);
    /// let recording = allocator.record(&file)?;
    /// drop(allocator.allocate(stream, 3 << 20)?);
    /// recording.mark_iteration();
    /// assert_eq!(recording.end()?, 3); // an allocation, a free, a mark
    /// # std::fs::remove_file(file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The file cannot be made, or the allocator is being recorded already.
    pub fn record(&self, path: impl AsRef<Path>) -> io::Result<Recording> {
        let snapshot = || self.engine.backend.snapshot();
        self.engine.recorder.begin(path.as_ref(), snapshot)
    }

    /// Proves every invariant of the heap. Slow: for tests and debugging.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        self.engine.backend.read().check()
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    /// What is serialised has the names of the fields.
    #[test]
    fn statistics_and_snapshots_can_be_serialised() {
        fn can<T: serde::Serialize>() {}
        can::<(crate::Stats, crate::RemapStats, Vec<crate::PoolStreamStats>)>();
        can::<(Vec<crate::SegmentView>, crate::Budget, Vec<crate::TagStats>)>();
    }
}
