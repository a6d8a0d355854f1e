//! What differs between sources: which is chosen, pools of another backend, who reaches the memory
//! from another device, and memory that graphs own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drystone::driver::{Call, CaptureMode, Driver, ErrorCode, Stream};
use drystone::{
    AllocateError, Allocator, Backend, BuildError, CrossStream, MemoryProvider, Options,
    PoolOptions, Prefer, SegmentKind,
};
use drystone_sim::{FaultMode, FaultPlan, SimConfig, SimDevice};
use parking_lot::Mutex;

use crate::altered::{Alteration, Altered};
use crate::program::Program;
use crate::setup::{ASYNC, MALLOC, SOURCES, Setup, VMM_2MIB};
use crate::sim::{MIB, watched};

fn build(config: SimConfig, options: &Options) -> Result<Allocator, BuildError> {
    Allocator::new(Arc::new(SimDevice::new(config)), options)
}

#[test]
fn the_source_is_chosen_by_what_the_device_can_do() {
    let [none, vmm, malloc, pools] =
        [None, Some(Backend::Vmm), Some(Backend::Malloc), Some(Backend::Async)];
    for (has_virtual_memory, has_async_malloc) in
        [(true, true), (true, false), (false, true), (false, false)]
    {
        let config = SimConfig { has_virtual_memory, has_async_malloc, ordinal: 3, ..watched() };
        let built = |backend| {
            let mut options = Options::default().with_prefer(Prefer::Memory);
            options.backend = backend;
            let allocator = build(config.clone(), &options);
            allocator.map(|allocator| allocator.backend())
        };
        let or = |has, backend, error| if has { Ok(backend) } else { Err(error) };
        let chosen = if has_virtual_memory { Backend::Vmm } else { Backend::Malloc };
        assert_eq!(built(none), Ok(chosen), "never the driver's pools unasked");
        let refused = BuildError::NoVirtualMemory { ordinal: 3 };
        assert_eq!(built(vmm), or(has_virtual_memory, Backend::Vmm, refused));
        assert_eq!(built(malloc), Ok(Backend::Malloc));
        let refused = BuildError::NoMemoryPools { ordinal: 3 };
        assert_eq!(built(pools), or(has_async_malloc, Backend::Async, refused));
    }
}

#[test]
fn memory_is_shareable_only_where_the_device_can_share() {
    for is_shareable in [true, false] {
        let config = SimConfig { is_shareable, ..watched() };
        let options = ASYNC.options().with_sharing(true);
        let refused = build(config, &options).err();
        let expected = (!is_shareable).then_some(BuildError::NotShareable { ordinal: 0 });
        assert_eq!(refused, expected);
    }
}

/// Knows whether the thread is relaxed: nobody else changes that here.
#[derive(Default)]
struct Cautious {
    is_relaxed: AtomicBool,
    asked: AtomicU64,
}

impl Alteration for Arc<Cautious> {
    fn before(&self, call: Call) {
        match call {
            Call::ExchangeCaptureMode => drop(self.is_relaxed.fetch_xor(true, Ordering::Relaxed)),
            Call::MemoryPoolUsage => {
                assert!(self.is_relaxed.load(Ordering::Relaxed), "a capture would be broken");
                self.asked.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

/// Anybody may ask for statistics, also beside a capture of another thread.
#[test]
fn the_drivers_pools_are_asked_what_they_hold_by_a_relaxed_thread_alone() {
    let device = SimDevice::new(watched());
    let cautious = Arc::new(Cautious::default());
    let driver = Altered { inner: Arc::new(device.clone()), alteration: Arc::clone(&cautious) };
    let program = Program::with_driver(Arc::new(device), Arc::new(driver), ASYNC.options());
    let lane = program.lane();
    let block = program.allocate(lane, MIB);
    assert!(program.reserved() > 0);
    program.free(block);
    program.allocator.trim().unwrap();
    assert!(cautious.asked.load(Ordering::Relaxed) >= 3);
    program.end();
}

#[test]
fn how_streams_share_is_told_to_the_driver() {
    for cross_stream in [CrossStream::Never, CrossStream::Passed, CrossStream::Wait] {
        for setup in &SOURCES {
            let options = setup.options().with_cross_stream(cross_stream);
            assert_eq!(build(watched(), &options).unwrap().cross_stream(), cross_stream);
        }
    }
}

/// What a program synchronises may give memory back: the figures follow.
#[test]
fn idle_memory_above_the_threshold_goes_back_when_the_program_synchronises() {
    for (release_threshold_bytes, held) in [(u64::MAX, 64 * MIB), (32 * MIB, 32 * MIB), (0, 0)] {
        let sim = SimDevice::new(watched());
        let options = ASYNC.options().with_release_threshold_bytes(release_threshold_bytes);
        let program = Program::new(Arc::new(sim.clone()), options);
        let lane = program.lane();
        let blocks = [0; 2].map(|_| program.allocate(lane, 32 * MIB));
        blocks.into_iter().for_each(|block| program.free(block));
        sim.synchronize_stream(lane.stream).unwrap();
        assert_eq!((program.reserved(), sim.physical_bytes()), (held, held));
        let all = program.allocator.stats().all.reserved_bytes;
        assert_eq!((all.peak, all.total), (64 * MIB, 64 * MIB));
        program.end();
    }
}

#[test]
fn i12_a_pool_of_plain_memory_within_virtual_memory() {
    let sim = SimDevice::new(watched());
    let options = VMM_2MIB.options().with_limit_bytes(64 * MIB);
    let program = Program::new(Arc::new(sim.clone()), options);
    let lane = program.lane();
    let plain = PoolOptions::default().with_backend(Backend::Malloc);
    let pool = program.allocator.add_pool_with(&plain).unwrap();
    let blocks = [700, 30 * MIB].map(|b| program.try_allocate_in(pool, lane, b).unwrap());
    let mapped = [700, 20 * MIB].map(|bytes| program.allocate(lane, bytes));
    assert_eq!(sim.live_objects().plain_allocations, 2);
    for view in program.allocator.snapshot() {
        let kind = if view.pool == 0 { SegmentKind::Mapped } else { SegmentKind::Plain };
        assert_eq!(view.kind, kind);
    }
    // One limit for both; the advice is about the pool that was asked.
    let refused = |pool| match program.try_allocate_in(pool, lane, 30 * MIB).unwrap_err() {
        AllocateError::OutOfMemory(error) => error.granule_bytes,
        error => panic!("{error}"),
    };
    assert_eq!((refused(pool), refused(drystone::PoolId::DEFAULT)), (None, Some(2 * MIB)));
    program.check();
    mapped.into_iter().for_each(|block| program.free(block));
    let [small, large] = blocks;
    program.free(large);
    // Its own blocks alone: a plain segment is no granule of anybody's.
    let again = program.try_allocate_in(pool, lane, 30 * MIB).unwrap();
    [small, again].into_iter().for_each(|block| program.free(block));
    program.allocator.release_pool(pool).unwrap();
    program.allocator.trim().unwrap();
    assert_eq!((program.reserved(), sim.live_objects().plain_allocations), (0, 0));
    program.end();
}

#[test]
fn pools_of_other_sources_are_allowed_where_they_make_sense() {
    let allowed = |setup: &Setup, backend| {
        let allocator = build(watched(), &setup.options()).unwrap();
        allocator.add_pool_with(&PoolOptions::default().with_backend(backend)).map(|_| ())
    };
    let other = |pool, allocator| Err(BuildError::OtherBackend { pool, allocator });
    for setup in [&VMM_2MIB, &MALLOC] {
        assert_eq!(allowed(setup, Backend::Vmm), Ok(()));
        assert_eq!(allowed(setup, Backend::Malloc), Ok(()));
        assert_eq!(allowed(setup, Backend::Async), other(Backend::Async, setup.backend));
    }
    assert_eq!(allowed(&ASYNC, Backend::Async), Ok(()));
    for backend in [Backend::Vmm, Backend::Malloc] {
        let error = allowed(&ASYNC, backend).unwrap_err();
        assert_eq!(Err(error.clone()), other(backend, Backend::Async));
        assert!(error.to_string().contains("async stands alone"));
    }
    let config = SimConfig { has_virtual_memory: false, ..watched() };
    let allocator = build(config, &MALLOC.options()).unwrap();
    let mapped = allocator.add_pool_with(&PoolOptions::default().with_backend(Backend::Vmm));
    assert_eq!(mapped, Err(BuildError::NoVirtualMemory { ordinal: 0 }));
    assert!(allocator.add_pool_with(&PoolOptions::default()).is_ok());
}

#[test]
fn a_peer_reaches_memory_mapped_before_and_after() {
    for setup in &SOURCES {
        let sim = SimDevice::new(SimConfig { peers: vec![1], ..watched() });
        let program = Program::new(Arc::new(sim.clone()), setup.options());
        let (lane, other) = (program.lane(), program.lane());
        let mut blocks: Vec<_> = [700, 3 * MIB, 40 * MIB]
            .into_iter()
            .flat_map(|bytes| [program.allocate(lane, bytes), program.allocate(other, bytes)])
            .collect();
        let gap = blocks.remove(2);
        program.free(gap);
        program.allocator.trim().unwrap();
        let reached =
            |block: &crate::program::Block| sim.is_reachable_by(1, block.address, block.bytes);
        assert!(!blocks.iter().any(reached));
        program.allocator.enable_peer_access(1).unwrap();
        assert!(blocks.iter().all(reached), "{:?}", setup.backend);
        blocks.extend([300, 90 * MIB].map(|bytes| program.allocate(other, bytes)));
        assert!(blocks.iter().all(reached));
        // Asking again is harmless, and a device without a link is refused.
        program.allocator.enable_peer_access(1).unwrap();
        let error = program.allocator.enable_peer_access(2).unwrap_err();
        assert_eq!((error.error.code, error.open_bytes), (ErrorCode::NotSupported, 0));
        assert!(error.to_string().contains("device 2 was not given access"), "{error}");
        blocks.into_iter().for_each(|block| program.free(block));
        program.end();
    }
}

#[test]
fn p4_a_peer_that_was_let_in_by_half_is_let_in_by_asking_again() {
    for nth in 1..=2 {
        let sim = SimDevice::new(SimConfig { peers: vec![1], ..watched() });
        let program = Program::new(Arc::new(sim.clone()), VMM_2MIB.options());
        let lane = program.lane();
        let blocks = [700, 10 * MIB].map(|bytes| program.allocate(lane, bytes));
        let (call, mode, code) = (Call::SetAccess, FaultMode::Once, ErrorCode::OutOfMemory);
        sim.install_fault(FaultPlan { call, nth, mode, code });
        let error = program.allocator.enable_peer_access(1).unwrap_err();
        assert_eq!(error.open_bytes + error.closed_bytes, 12 * MIB);
        assert_eq!(error.open_bytes == 0, nth == 1);
        let reached =
            |block: &crate::program::Block| sim.is_reachable_by(1, block.address, block.bytes);
        assert!(!blocks.iter().all(reached));
        // Nothing is lost: the program goes on, new memory is open, and the old after another try.
        let more = program.allocate(lane, 20 * MIB);
        program.check();
        program.allocator.enable_peer_access(1).unwrap();
        assert!(blocks.iter().chain([&more]).all(reached));
        blocks.into_iter().chain([more]).for_each(|block| program.free(block));
        program.end();
    }
}

/// What a capture allocates the graph owns; the allocator frees it within the capture only.
#[test]
fn b27_memory_allocated_in_a_capture_is_the_graphs() {
    let sim = SimDevice::new(watched());
    let program = Program::new(Arc::new(sim.clone()), ASYNC.options());
    let (lane, other) = (program.lane(), program.lane());
    let before = program.allocate(lane, 4 * MIB);
    sim.begin_capture(lane.stream, CaptureMode::Global).unwrap();
    let block = program.allocate(lane, 8 * MIB);
    let address = block.address;
    program.free(block);
    let again = program.allocate(lane, 8 * MIB);
    assert_eq!(again.address, address, "it serves again within the capture");
    assert_eq!(sim.graph_bytes(), 32 * MIB);
    let used = program.allocate(lane, 8 * MIB);
    program.use_on(&used, other);
    let frees = sim.calls_of(Call::FreeAsync);
    program.free(used);
    // Its use elsewhere cannot be ordered within the capture; what is not the graph's has to wait.
    program.free(before);
    assert_eq!(sim.calls_of(Call::FreeAsync), frees);
    assert_eq!(program.allocator.stats().all.active_bytes.current, (8 + 4) * MIB);
    assert_eq!(program.reserved(), (32 + 8) * MIB, "what graphs own is counted while it is live");
    sim.end_capture(lane.stream).unwrap();
    program.free(again);
    assert_eq!(sim.calls_of(Call::FreeAsync), frees, "after the capture it is the graph's");
    let next = program.allocate(lane, 4 * MIB);
    assert_eq!(sim.calls_of(Call::FreeAsync), frees + 1, "the other could go");
    assert_eq!(program.allocator.stats().all.active_bytes.current, 4 * MIB);
    program.free(next);
    program.end();
}

/// B14: when no stream of the program's is left, the default one takes what is to be freed.
#[test]
fn b14_blocks_outlive_every_stream() {
    let sim = SimDevice::new(watched());
    let program = Program::new(Arc::new(sim.clone()), ASYNC.options());
    let lane = program.lane();
    let block = program.allocate(lane, 32 * MIB);
    sim.launch(lane.stream, 5_000_000).unwrap();
    program.allocator.retire_stream(lane.id).unwrap();
    sim.destroy_stream(lane.stream).unwrap();
    program.free(block);
    assert_eq!(program.allocator.trim_passed().unwrap(), 0, "its last use still runs");
    assert_eq!(program.allocator.trim().unwrap(), 32 * MIB);
    program.check();
    program.end();
}

/// Provides memory of a device, a few times.
struct Generous {
    device: SimDevice,
    left: Mutex<u32>,
    out: Mutex<Vec<(u64, u64)>>,
}

impl MemoryProvider for Generous {
    fn allocate(&self, bytes: u64) -> Option<u64> {
        let mut left = self.left.lock();
        *left = left.checked_sub(1)?;
        let address = self.device.malloc(bytes).ok()?;
        self.out.lock().push((address, bytes));
        Some(address)
    }

    fn free(&self, address: u64, bytes: u64) {
        let mut out = self.out.lock();
        let at = out.iter().position(|&one| one == (address, bytes)).unwrap();
        out.remove(at);
        self.device.free(address).unwrap();
    }
}

#[test]
fn a_pools_memory_comes_from_its_provider_and_goes_back_there() {
    let device = SimDevice::new(watched());
    let allocator = Allocator::new(Arc::new(device.clone()), &Options::default()).unwrap();
    let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
    let provider = Arc::new(Generous { device, left: Mutex::new(2), out: Mutex::default() });
    let given = Arc::clone(&provider) as Arc<dyn MemoryProvider>;
    let pool = allocator.add_plain_pool(Some(given), true).unwrap();
    let first = allocator.allocate_raw(pool, stream, 3 * MIB).unwrap().address;
    let second = allocator.allocate_raw(pool, stream, 40 * MIB).unwrap().address;
    let segments = provider.out.lock().clone();
    assert_eq!(segments.len(), 2);
    assert!([first, second].iter().all(|block| segments.iter().any(|(start, _)| start == block)));
    assert_eq!(allocator.stats().all.reserved_bytes.current, segments[0].1 + segments[1].1);
    // A provider without memory is a device without.
    let refused = allocator.allocate_raw(pool, stream, 60 * MIB).unwrap_err();
    assert!(matches!(refused, AllocateError::OutOfMemory(_)), "{refused}");
    allocator.free(first).unwrap();
    allocator.trim().unwrap();
    assert_eq!(provider.out.lock().len(), 2, "a pool keeps its memory while it lives");
    allocator.release_pool(pool).unwrap();
    allocator.trim().unwrap();
    assert_eq!(*provider.out.lock(), [segments[1]], "one block lives on");
    // Whoever comes in the pool's place is served by the driver.
    allocator.free(second).unwrap();
    allocator.trim().unwrap();
    assert!(provider.out.lock().is_empty());
    *provider.left.lock() = 9;
    let plain = PoolOptions::default().with_backend(Backend::Malloc);
    let next = allocator.add_pool_with(&plain).unwrap();
    assert_eq!(next.index(), pool.index());
    let block = allocator.allocate_raw(next, stream, 3 * MIB).unwrap();
    assert!(provider.out.lock().is_empty());
    allocator.free(block.address).unwrap();
    allocator.check().unwrap();
}

#[test]
fn a_pool_that_holds_little_takes_little_from_its_provider() {
    let device = SimDevice::new(watched());
    let allocator = Allocator::new(Arc::new(device.clone()), &Options::default()).unwrap();
    let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
    let provider = Arc::new(Generous { device, left: Mutex::new(99), out: Mutex::default() });
    let given = Arc::clone(&provider) as Arc<dyn MemoryProvider>;
    let pool = allocator.add_plain_pool(Some(given), true).unwrap();
    let mut held = 0_u64;
    for _ in 0..50 {
        allocator.allocate_raw(pool, stream, 5 * MIB).unwrap();
        let now: u64 = provider.out.lock().iter().map(|(_, bytes)| bytes).sum();
        let quarter = (held / 4).next_multiple_of(2 * MIB);
        assert!(now - held <= quarter.clamp(6 * MIB, 20 * MIB), "{held} and then {now}");
        held = now;
    }
    assert!(provider.out.lock().len() < 20, "where there is much, blocks share it");
}

#[test]
fn the_drivers_own_pools_take_no_provider() {
    let device = SimDevice::new(watched());
    let allocator = Allocator::new(Arc::new(device.clone()), &ASYNC.options()).unwrap();
    let provider = Generous { device, left: Mutex::new(2), out: Mutex::default() };
    let refused = BuildError::OtherBackend { pool: Backend::Malloc, allocator: Backend::Async };
    let added = allocator.add_plain_pool(Some(Arc::new(provider)), true);
    assert_eq!(added.err(), Some(refused));
}
