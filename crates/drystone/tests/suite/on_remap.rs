//! What `on_remap` is told of failures: nothing of what was undone, all of what could not be.

use std::sync::{Arc, Mutex};

use drystone::MappingChange;
use drystone::driver::{Call, ErrorCode};
use drystone_sim::{FaultMode, FaultPlan, SimDevice};

use crate::program::Program;
use crate::setup::VMM_2MIB;
use crate::sim::{MIB, watched};

fn fault(call: Call, nth: u64, mode: FaultMode) -> FaultPlan {
    FaultPlan { call, nth, mode, code: ErrorCode::OutOfMemory }
}

#[test]
fn p4_what_was_undone_is_not_told_and_what_stands_is() {
    let device = SimDevice::new(watched());
    let program = Program::new(Arc::new(device.clone()), VMM_2MIB.options());
    let lane = program.default_lane();
    let seen: Arc<Mutex<Vec<(u64, bool)>>> = Arc::default();
    let noting = Arc::clone(&seen);
    let note = move |change: &MappingChange| {
        noting.lock().unwrap().push((change.bytes / MIB, change.is_backed));
    };
    program.allocator.on_remap(Arc::new(note)).unwrap();
    let seen = || std::mem::take(&mut *seen.lock().unwrap());

    device.install_fault(fault(Call::SetAccess, 1, FaultMode::Forever));
    assert!(program.try_allocate(lane, 6 * MIB).is_err());
    assert_eq!(seen(), [], "mapped, but unmapped again");
    device.install_fault(fault(Call::Unmap, 1, FaultMode::Forever));
    assert!(program.try_allocate(lane, 6 * MIB).is_err());
    let stands = seen();
    assert!(stands.iter().any(|change| change.1), "{stands:?}");
    device.clear_faults();
    program.allocator.trim().unwrap();
    let (backed, gone): (Vec<_>, Vec<_>) =
        stands.into_iter().chain(seen()).partition(|change| change.1);
    let sum = |changes: &[(u64, bool)]| changes.iter().map(|change| change.0).sum::<u64>();
    assert_eq!(sum(&backed), sum(&gone));
    program.end();
}

#[test]
fn what_goes_is_told_before_it_does_and_what_stays_after_all_again() {
    let device = SimDevice::new(watched());
    let program = Program::new(Arc::new(device.clone()), VMM_2MIB.options());
    let lane = program.default_lane();
    let seen: Arc<Mutex<Vec<(bool, u64)>>> = Arc::default();
    let noting = Arc::clone(&seen);
    let asked = device.clone();
    let note = move |change: &MappingChange| {
        noting.lock().unwrap().push((change.is_backed, asked.calls_of(Call::Unmap)));
    };
    program.allocator.on_remap(Arc::new(note)).unwrap();
    let block = program.allocate(lane, 6 * MIB);
    program.free(block);
    seen.lock().unwrap().clear();
    let unmaps = device.calls_of(Call::Unmap);
    device.install_fault(fault(Call::Unmap, 1, FaultMode::Forever));
    program.allocator.trim().unwrap_err();
    let told = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(told.first(), Some(&(false, unmaps)), "told before the driver is called");
    assert_eq!(told.last().map(|one| one.0), Some(true), "it is there still: {told:?}");
    device.clear_faults();
    let unmaps = device.calls_of(Call::Unmap);
    program.allocator.trim().unwrap();
    let told = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(told.first(), Some(&(false, unmaps)));
    assert!(told.iter().all(|one| !one.0), "{told:?}");
    program.end();
}

/// Ten iterations that remap the same memory back and forth: the driver is not called, nobody told.
#[test]
fn a_settled_program_is_told_of_nothing() {
    let device = SimDevice::new(watched());
    let program = Program::new(Arc::new(device.clone()), VMM_2MIB.options());
    let lane = program.default_lane();
    let told: Arc<Mutex<u64>> = Arc::default();
    let noting = Arc::clone(&told);
    let note = move |_: &MappingChange| *noting.lock().unwrap() += 1;
    program.allocator.on_remap(Arc::new(note)).unwrap();
    let iteration = || {
        let [a, b, c, d] = [4, 4, 4, 4].map(|mib| program.allocate(lane, mib * MIB));
        [a, c].into_iter().for_each(|block| program.free(block));
        let remapped = program.allocate(lane, 8 * MIB);
        [b, d, remapped].into_iter().for_each(|block| program.free(block));
    };
    (0..5).for_each(|_| iteration());
    assert!(program.allocator.stats().granule_remaps > 0);
    let calls = device.calls();
    *told.lock().unwrap() = 0;
    (0..10).for_each(|_| iteration());
    assert_eq!((device.calls() - calls, *told.lock().unwrap()), (0, 0));
    program.end();
}
