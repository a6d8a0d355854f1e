//! What a CUDA program asks of a device beyond what an allocator does: whether a stream is idle,
//! times of events, events of other devices, captures by number, what an address belongs to.
//! Like the harness's, these calls are not counted, priced or made to fail.

use crate::device::{SimDevice, locked};
use crate::event::Mark;
use crate::shared_file::SharedFile;
use crate::stream::Context;
use drystone_driver::{ErrorCode, Event, Handle, MemoryPool, MemoryPoolConfig, Stream};
use std::sync::Arc;

/// How memory came to be at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// A plain allocation.
    Plain,
    /// A mapping of virtual memory, with or without access.
    Mapped,
    /// A stream-ordered allocation.
    Pooled,
}

/// A plain or stream-ordered allocation, or one mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its start.
    pub address: u64,
    /// Its size, in bytes.
    pub bytes: u64,
    /// How it came to be.
    pub kind: ExtentKind,
}

impl SimDevice {
    /// Number of the capture that the stream takes part in.
    /// Errors: `InvalidHandle`.
    pub fn capture_of(&self, stream: Stream) -> Result<Option<u64>, ErrorCode> {
        let state = self.inner.state.lock();
        Ok(state.streams.get(stream)?.capture.as_ref().map(|member| member.capture))
    }

    /// Breaks the capture that the stream takes part in, if any.
    pub fn break_capture_of(&self, stream: Stream) {
        let state = &mut *self.inner.state.lock();
        let queue = state.streams.get(stream).ok();
        if let Some(member) = queue.and_then(|queue| queue.capture.as_ref()) {
            state.captures.break_one(member.capture);
        }
    }

    /// Moves the host's time on to when the device is idle, as a program does that waits for it.
    /// It is no waiting of the allocator's, and not counted as such.
    pub fn finish_all(&self) {
        let state = &mut *self.inner.state.lock();
        self.inner.clock.advance_to(state.streams.idle_ns(Context::PRIMARY));
        state.wait_until_idle(Context::PRIMARY);
        state.trim_pools();
    }

    /// The allocation or mapping that holds an address.
    pub fn extent_at(&self, at: u64) -> Option<Extent> {
        let memory = &self.inner.state.lock().memory;
        let with = |kind| move |(address, bytes)| Extent { address, bytes, kind };
        let mapped = memory.vm.mapping_at(at).map(|one| (one.address, one.bytes));
        let plain = || memory.plain.extent_at(at).map(|one| (one.address, one.bytes));
        let pooled = || memory.pools.extent_at(at).map(|one| (one.address, one.bytes));
        mapped
            .map(with(ExtentKind::Mapped))
            .or_else(|| plain().map(with(ExtentKind::Plain)))
            .or_else(|| pooled().map(with(ExtentKind::Pooled)))
    }

    /// Whether a kernel may touch every byte of a range.
    pub fn is_accessible(&self, address: u64, bytes: u64) -> bool {
        self.inner.state.lock().memory.resolve(address, bytes).is_some()
    }

    /// Whether the address lies in a live allocation from this pool.
    pub fn is_from_pool(&self, pool: MemoryPool, at: u64) -> bool {
        let state = self.inner.state.lock();
        state.memory.pools.get(pool).is_ok_and(|pool| pool.extent_at(at).is_some())
    }

    /// Whether a kernel of another device may touch every byte of a range. Mappings are open to
    /// the peers let in before their access was last set, other memory to all.
    pub fn is_reachable_by(&self, peer_ordinal: u32, address: u64, bytes: u64) -> bool {
        let state = self.inner.state.lock();
        let Some(place) = state.peers.iter().position(|&peer| peer == peer_ordinal) else {
            return false;
        };
        let Some(end) = address.checked_add(bytes) else { return false };
        let is_open = |at| state.memory.vm.peers_at(at).is_none_or(|peers| peers as usize > place);
        let granules = (address..end).step_by(crate::GRANULARITY_BYTES as usize);
        state.memory.resolve(address, bytes).is_some()
            && granules.chain(end.checked_sub(1)).all(is_open)
    }

    /// How a memory pool is run.
    /// Errors: `InvalidHandle`.
    pub fn memory_pool_config(&self, pool: MemoryPool) -> Result<MemoryPoolConfig, ErrorCode> {
        Ok(*self.inner.state.lock().memory.pools.get(pool)?.config())
    }

    /// Runs a memory pool in another way from now on.
    /// Errors: `InvalidHandle`.
    pub fn configure_memory_pool(
        &self,
        pool: MemoryPool,
        config: MemoryPoolConfig,
    ) -> Result<(), ErrorCode> {
        self.inner.state.lock().memory.pools.get_mut(pool)?.configure(config);
        Ok(())
    }

    /// Sets the peaks of a memory pool's account back to the present.
    /// Errors: `InvalidHandle`.
    pub fn reset_memory_pool_peaks(
        &self,
        pool: MemoryPool,
        reserved: bool,
        used: bool,
    ) -> Result<(), ErrorCode> {
        self.inner.state.lock().memory.pools.get_mut(pool)?.reset_peaks(reserved, used);
        Ok(())
    }

    /// A handle of as much memory of another device, to be mapped at addresses of this one. It
    /// takes no memory.
    /// Errors: `InvalidValue`.
    pub fn foreign_handle(&self, bytes: u64) -> Result<Handle, ErrorCode> {
        let memory = &mut self.inner.state.lock().memory;
        memory.vm.foreign_handle(&mut memory.supply, bytes)
    }
}

locked! {
    /// Whether all work queued on the stream is complete.
    /// Errors: `InvalidHandle`, `CaptureUnsupported`.
    fn query_stream(stream: Stream) -> Result<bool, ErrorCode> = query_stream;
    /// Blocks the host until all work queued on the stream is complete, as a blocking copy does.
    /// Errors: `InvalidHandle`, `CaptureUnsupported`.
    fn finish_stream(stream: Stream) -> Result<(), ErrorCode> = synchronize_stream;
    /// Lets the calling thread make a call that the device knows nothing of but its rule, by the
    /// name of CUDA's driver API without a version; a name without a rule counts as unproven.
    /// Errors: `CaptureUnsupported`, and the captures that forbid it are broken.
    fn permit(function: &str) -> Result<(), ErrorCode> = permit_named;
    /// Refuses a call on a stream that is captured, and breaks that capture.
    /// Errors: `InvalidHandle`, `CaptureUnsupported`.
    fn permit_on(function: &'static str, stream: Stream) -> Result<(), ErrorCode> = permit_on;
    /// What an event stands for; `None` if it was never recorded.
    /// Errors: `InvalidHandle`, `CapturedEvent`.
    fn mark(event: Event) -> Result<Option<Mark>, ErrorCode> = mark;
    /// Makes work queued on the stream from now on wait for an event of another device.
    /// Errors: `InvalidHandle`; `Other(905)` on a capturing stream, which breaks the capture.
    fn wait_mark(stream: Stream, mark: &Mark) -> Result<(), ErrorCode> = wait_mark;
    /// Ends a capture as [`end_capture`](Self::end_capture) does and returns how long the captured
    /// work takes when replayed, in nanoseconds.
    /// Errors: as there.
    fn take_capture(stream: Stream) -> Result<u64, ErrorCode> = end_capture;
    /// Makes a stream part of the capture that began on another.
    /// Errors: `InvalidHandle`, `InvalidValue` (`origin` is not captured), `CaptureUnsupported`
    /// (the default stream, or one that is captured already), `Other(901)` (it is broken).
    fn join_capture(stream: Stream, origin: Stream) -> Result<(), ErrorCode> = join_capture;
    /// Joins every stream of a capture to that on which it began, and ends it. Returns how long the
    /// captured work takes when replayed, in nanoseconds.
    /// Errors: as [`end_capture`](Self::end_capture), except 904.
    fn end_joined_capture(origin: Stream) -> Result<u64, ErrorCode> = end_joined_capture;
    /// A memory pool that no call of the program made, as a device has one from the start.
    /// Errors: `NotSupported`.
    fn add_memory_pool(config: &MemoryPoolConfig) -> Result<MemoryPool, ErrorCode>
        = create_memory_pool;
    /// Handles of the memory pools.
    fn memory_pools() -> Vec<MemoryPool> = memory.pools.handles;
    /// Takes the access rights of whole mappings away.
    /// Errors: `InvalidValue` when part of the range is not mapped or a mapping would be cut.
    fn remove_access(address: u64, bytes: u64) -> Result<(), ErrorCode> = memory.vm.remove_access;
    /// The file that stands for the memory of a handle in every process, with its bytes.
    /// Errors: `InvalidHandle`; `Other(304)`, the operating system gives no more.
    fn file_of(handle: Handle) -> Result<Arc<SharedFile>, ErrorCode> = memory.vm.file_of;
    /// A handle of mapped memory whose own was released.
    /// Errors: `InvalidValue` when nothing is mapped there.
    fn handle_again(at: u64) -> Result<Handle, ErrorCode> = memory.vm.handle_again;
    /// One more handle of memory, by which another device keeps it while it is mapped there,
    /// and its size.
    /// Errors: `InvalidHandle`.
    fn one_more_handle(handle: Handle) -> Result<(Handle, u64), ErrorCode>
        = memory.vm.one_more_handle;
    /// Gives up a handle of either kind.
    /// Errors: `InvalidHandle`.
    fn give_up_handle(handle: Handle) -> Result<(), ErrorCode> = release;
}

#[cfg(test)]
mod tests {
    use crate::{Extent, ExtentKind, GRANULARITY_BYTES as G, SimConfig, SimDevice};
    use drystone_driver::{CaptureMode, Driver, ErrorCode, MemoryPoolConfig, Stream};

    #[test]
    fn a_stream_of_one_device_waits_for_an_event_of_another() {
        let first = SimDevice::new(SimConfig { oracle: true, ..SimConfig::default() });
        let config = SimConfig { ordinal: 1, oracle: true, ..SimConfig::default() };
        let second = SimDevice::beside(config, &first);
        let event = first.create_event().unwrap();
        assert!(first.mark(event).unwrap().is_none());
        first.launch(Stream::DEFAULT, 500).unwrap();
        first.record(event, Stream::DEFAULT).unwrap();
        let mark = first.mark(event).unwrap().unwrap();
        second.wait_mark(Stream::DEFAULT, &mark).unwrap();
        assert!(!second.query_stream(Stream::DEFAULT).unwrap());
        first.advance_by(500);
        assert!(second.query_stream(Stream::DEFAULT).unwrap());
    }

    #[test]
    fn order_that_goes_through_another_device_is_order() {
        let first = SimDevice::new(SimConfig { oracle: true, ..SimConfig::default() });
        let config = SimConfig { ordinal: 1, oracle: true, ..SimConfig::default() };
        let second = SimDevice::beside(config, &first);
        let (from, to, far) = (first.create_stream(), first.create_stream(), Stream::DEFAULT);
        for is_ordered in [false, true] {
            let block = first.malloc(G).unwrap();
            first.check_alloc(block, 512, from);
            first.check_free(block);
            if is_ordered {
                let (there, back) = (first.create_event().unwrap(), second.create_event().unwrap());
                first.record(there, from).unwrap();
                second.wait_mark(far, &first.mark(there).unwrap().unwrap()).unwrap();
                second.record(back, far).unwrap();
                first.wait_mark(to, &second.mark(back).unwrap().unwrap()).unwrap();
            }
            first.check_alloc(block, 512, to);
            assert_eq!(first.take_violations().is_empty(), is_ordered);
            first.check_free(block);
            first.free(block).unwrap();
        }
    }

    /// Both streams are the first of their device.
    #[test]
    fn what_another_device_did_is_not_taken_for_work_of_this_one() {
        let first = SimDevice::new(SimConfig { oracle: true, ..SimConfig::default() });
        let config = SimConfig { ordinal: 1, oracle: true, ..SimConfig::default() };
        let second = SimDevice::beside(config, &first);
        let to = first.create_stream();
        let [block, _] = [&first, &second].map(|device| {
            let block = device.malloc(G).unwrap();
            device.check_alloc(block, 512, Stream::DEFAULT);
            device.check_free(block);
            block
        });
        let event = second.create_event().unwrap();
        second.record(event, Stream::DEFAULT).unwrap();
        first.wait_mark(to, &second.mark(event).unwrap().unwrap()).unwrap();
        first.check_alloc(block, 512, to);
        assert_eq!(first.take_violations().len(), 1);
    }

    #[test]
    fn a_replayed_capture_takes_as_long_as_its_longest_path() {
        let device = SimDevice::new(SimConfig::default());
        let (one, two) = (device.create_stream(), device.create_stream());
        let (fork, join) = (device.create_event().unwrap(), device.create_event().unwrap());
        device.begin_capture(one, CaptureMode::Relaxed).unwrap();
        device.launch(one, 10).unwrap();
        device.record(fork, one).unwrap();
        device.wait(two, fork).unwrap();
        assert_eq!(device.capture_of(one), device.capture_of(two));
        device.launch(two, 300).unwrap();
        device.launch(one, 20).unwrap();
        device.record(join, two).unwrap();
        device.wait(one, join).unwrap();
        device.launch(one, 5).unwrap();
        assert_eq!(device.take_capture(one), Ok(315));
        assert_eq!(device.capture_of(one), Ok(None));
    }

    #[test]
    fn a_capture_of_several_streams_ends_after_all_of_them() {
        let device = SimDevice::new(SimConfig::default());
        let (one, two) = (device.create_stream(), device.create_stream());
        device.begin_capture(one, CaptureMode::Global).unwrap();
        device.join_capture(two, one).unwrap();
        assert_eq!(device.join_capture(two, one), Err(ErrorCode::CaptureUnsupported));
        device.launch(one, 10).unwrap();
        device.launch(two, 300).unwrap();
        assert_eq!(device.end_joined_capture(one), Ok(300));
        assert_eq!((device.capture_of(two), device.work_end_ns()), (Ok(None), 0));
        assert_eq!(device.join_capture(two, one), Err(ErrorCode::InvalidValue));
    }

    #[test]
    fn a_program_that_waits_finds_the_device_idle_and_is_not_counted() {
        let device = SimDevice::new(SimConfig { event_latency_ns: 20, ..SimConfig::default() });
        let event = device.create_event().unwrap();
        device.launch(Stream::DEFAULT, 500).unwrap();
        device.record(event, Stream::DEFAULT).unwrap();
        let calls = device.calls();
        device.finish_all();
        assert_eq!((device.now_ns(), device.host_waited_ns(), device.calls()), (520, 0, calls));
        assert!(device.query(event).unwrap());
    }

    #[test]
    fn an_address_tells_what_holds_it() {
        let device = SimDevice::new(SimConfig::default());
        let plain = device.malloc(1000).unwrap();
        let extent = Extent { address: plain, bytes: 1000, kind: ExtentKind::Plain };
        assert_eq!(device.extent_at(plain + 999), Some(extent));
        assert_eq!(device.extent_at(plain + 1000), None);
        let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        let pooled = device.malloc_async(pool, 512, Stream::DEFAULT).unwrap();
        assert_eq!(device.extent_at(pooled).unwrap().kind, ExtentKind::Pooled);
        assert!(device.is_from_pool(pool, pooled) && !device.is_from_pool(pool, plain));
        let address = device.reserve(2 * G, 0).unwrap();
        assert_eq!(device.extent_at(address), None);
        let handle = device.create(G).unwrap();
        device.map(address, G, handle).unwrap();
        assert_eq!(device.extent_at(address + 5).unwrap().kind, ExtentKind::Mapped);
        assert_eq!(device.extent_at(address + G), None);
        assert!(!device.is_accessible(address, G));
        device.set_access(address, G).unwrap();
        assert!(device.is_accessible(address, G));
        device.remove_access(address, G).unwrap();
        assert!(!device.is_accessible(address, G));
    }

    #[test]
    fn mapped_memory_is_reached_by_peers_let_in_before_its_access_was_set() {
        let config = SimConfig { peers: vec![3, 1], ..SimConfig::default() };
        let device = SimDevice::new(config);
        let (plain, address) = (device.malloc(1000).unwrap(), device.reserve(3 * G, 0).unwrap());
        for at in 0..3 {
            let handle = device.create(G).unwrap();
            device.map(address + at * G, G, handle).unwrap();
        }
        device.set_access(address, 2 * G).unwrap();
        assert!(!device.is_reachable_by(3, plain, 1000));
        device.enable_peer_access(3).unwrap();
        device.enable_peer_access(3).unwrap();
        assert!(device.is_reachable_by(3, plain, 1000) && !device.is_reachable_by(3, plain, 1001));
        assert!(!device.is_reachable_by(3, address, G));
        device.set_access(address + G, 2 * G).unwrap();
        assert!(device.is_reachable_by(3, address + G, 2 * G));
        assert!(!device.is_reachable_by(3, address + G - 1, 2));
        device.enable_peer_access(1).unwrap();
        assert!(device.is_reachable_by(1, plain, 8) && !device.is_reachable_by(1, address + G, 8));
        device.set_access(address, 3 * G).unwrap();
        assert!(device.is_reachable_by(1, address, 3 * G));
        assert!(!device.is_reachable_by(2, address, G));
        let refused = device.enable_peer_access(2).unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotSupported);
        assert_eq!(device.enable_peer_access(0).unwrap_err().code, ErrorCode::InvalidValue);
    }

    #[test]
    fn mapped_memory_gets_a_handle_again() {
        let device = SimDevice::new(SimConfig::default());
        let address = device.reserve(G, 0).unwrap();
        let handle = device.create(G).unwrap();
        device.map(address, G, handle).unwrap();
        device.release(handle).unwrap();
        let again = device.handle_again(address).unwrap();
        device.unmap(address, G).unwrap();
        assert_eq!(device.handle_again(address), Err(ErrorCode::InvalidValue));
        assert_eq!(device.physical_bytes(), G);
        device.release(again).unwrap();
        assert_eq!(device.physical_bytes(), 0);
    }
}
