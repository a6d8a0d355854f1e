//! Tests of the tests: allocators with a bug, made by drivers that lie to them, must be caught by
//! the same random runs that find nothing on the real one, and as what they are.

use std::sync::{Arc, Mutex};

use drystone::driver::{Driver, DriverError, Handle, MemoryPool, Stream};
use drystone_sim::{SimDevice, Violation};

use crate::altered::{Alteration, Altered};
use crate::program::Program;
use crate::seeds::{self, Failure};
use crate::setup::VMM_2MIB;
use crate::sim::{MIB, watched};

type Result<T> = std::result::Result<T, DriverError>;

/// Runs seeds until one shows a violation of this kind. Any other finding is passed over: a lie
/// has many consequences.
fn catches<A: Alteration + 'static>(make: fn() -> A, is_kind: fn(&Violation) -> bool) {
    let alter = |inner: Arc<dyn Driver>| -> Arc<dyn Driver> {
        Arc::new(Altered { inner, alteration: make() })
    };
    let mut others = Vec::new();
    for seed in 0..200 {
        match seeds::run(seed, &alter) {
            Ok(_) => {}
            Err(Failure { violations, .. }) if violations.iter().any(is_kind) => return,
            Err(failure) => others.push(failure.to_string()),
        }
    }
    panic!("200 seeds did not catch it; findings: {others:?}");
}

fn is_reuse(violation: &Violation) -> bool {
    matches!(violation, Violation::UnorderedReuse { .. })
}

/// Changes nothing: the harness itself is innocent.
struct Honest;

impl Alteration for Honest {}

#[test]
fn an_honest_driver_is_not_accused() {
    for seed in 0..40 {
        let alter = |inner| -> Arc<dyn Driver> { Arc::new(Altered { inner, alteration: Honest }) };
        let digest = seeds::run(seed, &alter).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(seeds::run(seed, &|driver| driver).unwrap(), digest, "seed {seed}");
    }
}

/// Reuses early: the stream does not wait for the one that freed.
struct NoWait;

impl Alteration for NoWait {
    fn wait(&self) -> Option<Result<()>> {
        Some(Ok(()))
    }
}

#[test]
fn reuse_without_the_wait_is_caught() {
    catches(|| NoWait, is_reuse);
}

/// Reuses early: pending blocks are free at once.
struct ReadyTooEarly;

impl Alteration for ReadyTooEarly {
    fn query(&self) -> Option<Result<bool>> {
        Some(Ok(true))
    }
}

#[test]
fn reuse_before_the_event_is_ready_is_caught() {
    catches(|| ReadyTooEarly, is_reuse);
}

/// The driver's own pools order what they are told: a free before the last use is the lie's.
#[test]
fn a_free_in_stream_order_before_a_use_is_over_is_caught() {
    catches(|| ReadyTooEarly, |found| matches!(found, Violation::UnorderedFree { .. }));
}

/// Reuses early (B5): the event is asked, but was never recorded for this use.
struct NoRecord;

impl Alteration for NoRecord {
    fn record(&self) -> Option<Result<()>> {
        Some(Ok(()))
    }
}

#[test]
fn b05_reuse_without_the_record_is_caught() {
    catches(|| NoRecord, is_reuse);
}

/// Unmaps early (B13): memory goes back to the device while kernels run.
struct NoSynchronize;

impl Alteration for NoSynchronize {
    fn synchronize_device(&self) -> Option<Result<()>> {
        Some(Ok(()))
    }
}

#[test]
fn b13_unmapping_under_a_kernel_is_caught() {
    catches(|| NoSynchronize, |found| matches!(found, Violation::UnmapInFlight { .. }));
}

/// Overlaps: granules of one size are two addresses of the same memory.
#[derive(Default)]
struct MapsOneHandleTwice {
    first: Mutex<Option<Handle>>,
}

impl Alteration for MapsOneHandleTwice {
    fn map(&self, inner: &dyn Driver, at: (u64, u64), handle: Handle) -> Option<Result<()>> {
        let first = *self.first.lock().unwrap().get_or_insert(handle);
        Some(inner.map(at.0, at.1, first).or_else(|_| inner.map(at.0, at.1, handle)))
    }
}

#[test]
fn two_blocks_on_one_granule_are_caught() {
    catches(MapsOneHandleTwice::default, |found| matches!(found, Violation::Overlap { .. }));
}

/// Overlaps: a plain segment lies in the middle of the one before.
#[derive(Default)]
struct GivesMemoryTwice {
    last: Mutex<Option<(u64, u64)>>,
}

impl Alteration for GivesMemoryTwice {
    fn malloc(&self, inner: &dyn Driver, bytes: u64) -> Option<Result<u64>> {
        let mut last = self.last.lock().unwrap();
        if let Some((address, room)) = *last
            && bytes < room
        {
            return Some(Ok(address + (room - bytes) / 512 * 512));
        }
        let result = inner.malloc(bytes);
        *last = result.as_ref().ok().map(|&address| (address, bytes));
        Some(result)
    }
}

/// The heap itself finds this one out, before a block is handed out.
#[test]
#[should_panic(expected = "a segment overlaps another")]
fn two_plain_segments_on_one_memory_are_caught() {
    catches(GivesMemoryTwice::default, |found| matches!(found, Violation::Overlap { .. }));
}

/// Frees in the order of the wrong stream.
struct FreesOnTheDefaultStream;

impl Alteration for FreesOnTheDefaultStream {
    fn free_async(&self, inner: &dyn Driver, address: u64) -> Option<Result<()>> {
        Some(inner.free_async(address, Stream::DEFAULT))
    }
}

#[test]
fn b01_a_free_in_the_order_of_another_stream_is_caught() {
    let is_kind = |found: &Violation| matches!(found, Violation::UnorderedFree { .. });
    catches(|| FreesOnTheDefaultStream, is_kind);
}

/// Overlaps: a stream-ordered block lies in the one before.
#[derive(Default)]
struct PoolGivesMemoryTwice {
    last: Mutex<Option<(u64, u64)>>,
}

impl Alteration for PoolGivesMemoryTwice {
    fn malloc_async(
        &self,
        inner: &dyn Driver,
        bytes: u64,
        of: (MemoryPool, Stream),
    ) -> Option<Result<u64>> {
        let mut last = self.last.lock().unwrap();
        if let Some((address, room)) = *last
            && bytes < room
        {
            return Some(Ok(address + (room - bytes) / 512 * 512));
        }
        let result = inner.malloc_async(of.0, bytes, of.1);
        *last = result.as_ref().ok().map(|&address| (address, bytes));
        Some(result)
    }
}

#[test]
fn two_pooled_blocks_on_one_memory_are_caught() {
    catches(PoolGivesMemoryTwice::default, |found| matches!(found, Violation::Overlap { .. }));
}

/// A use that the program did not record is the program's bug, and shows as what it is.
#[test]
fn b09_a_use_that_was_not_recorded_is_caught() {
    let sim = SimDevice::new(watched());
    let program = Program::new(Arc::new(sim.clone()), VMM_2MIB.options());
    let (lane, third) = (program.lane(), program.lane());
    let block = program.allocate(lane, 3 * MIB);
    sim.check_use(block.address, third.stream);
    program.free(block);
    let block = program.allocate(lane, 3 * MIB);
    assert!(matches!(sim.take_violations()[..], [Violation::UnorderedReuse { .. }]));
    program.free(block);
    sim.take_violations();
    program.end();
}
