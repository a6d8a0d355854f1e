//! Planned failures of functions that the simulated device knows nothing of. Those it knows fail
//! inside it, so that they are counted like any other refused call.
//!
//! Invariant: a fault strikes before the call has changed anything.

use crate::status::{Outcome, Status};
use crate::{context, process};
use drystone_driver::Call;
use drystone_sim::{FaultMode, FaultPlan, Faults, Rule};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether there is any plan: the only thing an ordinary call looks at.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
/// By the device's ordinal and a function's name.
static PLANS: Mutex<BTreeMap<usize, Faults<String, Status>>> = Mutex::new(BTreeMap::new());

/// The simulated device's call behind a function, by the name of either API.
fn call_of(name: &str) -> Option<Call> {
    // What moves take is no call of the simulated device's here.
    let is_its = |call: &Call| !matches!(call, Call::Hold | Call::Copy | Call::FinishCopies);
    let of_driver = name.replacen("cuda", "cu", 1);
    let is_named = |call: &Call| {
        call.cuda_name() == name || [name, &of_driver].contains(&Rule::of(*call).function)
    };
    let known = Call::ALL.into_iter().filter(is_its).find(is_named);
    known.or(match &*of_driver {
        "cuMemAllocPitch" => Some(Call::Malloc),
        "cuMemAllocAsync" | "cuMallocFromPoolAsync" => Some(Call::MallocAsync),
        "cuEventCreateWithFlags" => Some(Call::CreateEvent),
        "cuEventRecordWithFlags" => Some(Call::Record),
        "cuDeviceEnablePeerAccess" => Some(Call::EnablePeerAccess),
        _ => None,
    })
}

/// The name without the version and the variant for per-thread streams.
pub(crate) fn base_name(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    ["_v2", "_v3", "_v4"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)
}

/// Makes the n-th call of a function from now on fail, once or from then on.
pub(crate) fn install(
    ordinal: usize,
    name: &str,
    nth: u64,
    is_for_ever: bool,
    status: Status,
) -> Outcome {
    let device = process::device(ordinal)?;
    let name = base_name(name);
    let mode = if is_for_ever { FaultMode::Forever } else { FaultMode::Once };
    if let Some(call) = call_of(name) {
        device.sim.install_fault(FaultPlan { call, nth, mode, code: status.as_error_code() });
    } else {
        let plan = FaultPlan { call: name.to_owned(), nth, mode, code: status };
        PLANS.lock().entry(ordinal).or_default().install(plan);
        IS_ARMED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

pub(crate) fn clear(ordinal: usize) -> Outcome {
    process::device(ordinal)?.sim.clear_faults();
    let mut plans = PLANS.lock();
    plans.remove(&ordinal);
    IS_ARMED.store(!plans.is_empty(), Ordering::Relaxed);
    Ok(())
}

/// How many calls have failed by plan since the plans were last cleared.
pub(crate) fn fired(ordinal: usize) -> u64 {
    let own = PLANS.lock().get(&ordinal).map_or(0, Faults::fired);
    own + process::device(ordinal).map_or(0, |device| device.sim.faults_fired())
}

pub(crate) fn strike(name: &str) -> Outcome {
    if !IS_ARMED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let ordinal = context::current_ordinal().unwrap_or(0);
    PLANS.lock().get_mut(&ordinal).map_or(Ok(()), |plans| plans.check(base_name(name)))
}
