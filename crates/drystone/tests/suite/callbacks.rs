//! Code of the program that the library calls, and that panics or calls back: no memory is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use drystone::driver::{CaptureMode, Driver, Stream};
use drystone::{AllocateError, Allocator, MappingChange, MemoryProvider, Options};
use drystone_sim::{SimConfig, SimDevice};

use crate::program::Program;
use crate::sim::{MIB, watched};

fn small() -> (SimDevice, Program) {
    let sim = SimDevice::new(SimConfig { total_bytes: 128 * MIB, ..watched() });
    (sim.clone(), Program::new(Arc::new(sim), Options::default()))
}

#[test]
fn who_panics_when_told_of_mappings_loses_no_memory() {
    let (_, program) = small();
    let told = Arc::new(AtomicU32::new(0));
    let counting = Arc::clone(&told);
    let panic = move |_: &MappingChange| {
        counting.fetch_add(1, Ordering::Relaxed);
        panic!("of the program");
    };
    program.allocator.on_remap(Arc::new(panic)).unwrap();
    let lane = program.default_lane();
    for _ in 0..3 {
        let blocks = [20, 30].map(|size| program.allocate(lane, size * MIB));
        let mut cache = program.allocator.reserve(lane.id, 64 * MIB).unwrap();
        cache.grow_to(40 * MIB).unwrap();
        program.check();
        drop(cache);
        blocks.into_iter().for_each(|block| program.free(block));
        program.allocator.trim().unwrap();
        assert_eq!(program.reserved(), 0);
    }
    // All of it can be had in one piece.
    let block = program.allocate(lane, 128 * MIB);
    program.free(block);
    assert!(told.load(Ordering::Relaxed) >= 6);
    program.end();
}

#[test]
fn who_panics_when_memory_is_out_loses_none() {
    let (_, program) = small();
    let lane = program.default_lane();
    let block = program.allocate(lane, 100 * MIB);
    // Taken out again, since it would keep the allocator that keeps it.
    let handle = Arc::new(Mutex::new(Some(program.allocator.clone())));
    let asked = Arc::clone(&handle);
    program.allocator.on_out_of_memory(Arc::new(move |_| {
        let Some(allocator) = asked.lock().unwrap().take() else { return false };
        // With no lock held.
        allocator.trim().unwrap();
        drop(allocator.allocate(lane.id, 512).unwrap());
        panic!("of the program");
    }));
    let asked = catch_unwind(AssertUnwindSafe(|| program.try_allocate(lane, 60 * MIB).is_ok()));
    assert!(asked.is_err() && handle.lock().unwrap().is_none());
    program.check();
    program.free(block);
    let block = program.allocate(lane, 120 * MIB);
    program.free(block);
    program.end();
}

/// Panics before it has given anything, or once it has taken back.
struct Panics {
    device: SimDevice,
    is_giving: AtomicBool,
}

impl MemoryProvider for Panics {
    fn allocate(&self, bytes: u64) -> Option<u64> {
        assert!(self.is_giving.load(Ordering::Relaxed), "of the program");
        self.device.malloc(bytes).ok()
    }

    fn free(&self, address: u64, _: u64) {
        self.device.free(address).unwrap();
        panic!("of the program");
    }
}

#[test]
fn a_provider_that_panics_has_given_nothing_or_taken_all_back() {
    let device = SimDevice::new(watched());
    let limited = Options::default().with_limit_bytes(64 * MIB);
    let allocator = Allocator::new(Arc::new(device.clone()), &limited).unwrap();
    let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
    let provider = Arc::new(Panics { device: device.clone(), is_giving: AtomicBool::new(false) });
    let given = Arc::clone(&provider) as Arc<dyn MemoryProvider>;
    let pool = allocator.add_plain_pool(Some(given), true).unwrap();
    let refused = allocator.allocate_raw(pool, stream, 40 * MIB);
    assert!(matches!(refused, Err(AllocateError::OutOfMemory(_))), "{refused:?}");
    allocator.check().unwrap();
    provider.is_giving.store(true, Ordering::Relaxed);
    let block = allocator.allocate_raw(pool, stream, 40 * MIB).unwrap();
    allocator.free(block.address).unwrap();
    allocator.release_pool(pool).unwrap();
    assert_eq!(allocator.trim(), Ok(40 * MIB));
    // Nothing counts as under way.
    drop(allocator.allocate(stream, 64 * MIB).unwrap());
    drop(allocator);
    assert!(device.live_objects().is_empty() && device.violations().is_empty());
}

/// A capture that was announced for a pool comes no more once the pool is released.
#[test]
fn a_released_pool_holds_up_no_trim() {
    let (_, program) = small();
    let lane = program.lane();
    let pool = program.allocator.add_pool();
    program.allocator.expect_capture(pool).unwrap();
    assert!(program.allocator.trim().is_err(), "a capture may begin");
    program.allocator.release_pool(pool).unwrap();
    program.allocator.trim().unwrap();
    // One under way still counts.
    let pool = program.allocator.add_pool();
    program.allocator.expect_capture(pool).unwrap();
    program.device.begin_capture(lane.stream, CaptureMode::Global);
    let block = program.try_allocate_in(pool, lane, MIB).unwrap();
    program.allocator.release_pool(pool).unwrap();
    program.allocator.trim().unwrap_err();
    assert!(program.device.end_capture(lane.stream), "the capture is broken");
    program.free(block);
    program.end();
}

/// I14: what waits for the device may wait for what another thread does once it has memory. So may
/// a capture that waits for its turn.
#[test]
fn i14_others_grow_while_the_device_is_waited_for() {
    let (_, program) = small();
    let lane = program.lane();
    let (program, stays) = (&program, AtomicBool::new(false));
    std::thread::scope(|threads| {
        program.allocator.before_captures(|| {
            threads.spawn(|| {
                program.allocator.while_memory_stays(|| stays.store(true, Ordering::SeqCst))
            });
            // So that it comes first, most of the time.
            std::thread::sleep(Duration::from_millis(20));
            let misses = threads.spawn(|| program.allocate(lane, 40 * MIB));
            let start = Instant::now();
            while !misses.is_finished() {
                assert!(start.elapsed() < Duration::from_secs(20), "the miss waits");
                std::thread::sleep(Duration::from_millis(1));
            }
            program.free(misses.join().unwrap());
            assert!(!stays.load(Ordering::SeqCst), "a capture would be broken");
        });
    });
    assert!(stays.into_inner());
    program.allocator.trim().unwrap();
}
