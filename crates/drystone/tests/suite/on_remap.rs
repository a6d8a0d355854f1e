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
