//! Planned failures of functions that the simulated device knows nothing of. Those it knows fail
//! inside it, so that they are counted like any other refused call.
//!
//! Invariant: a fault strikes before the call has changed anything.

use crate::status::{Outcome, Status};
use crate::{context, process};
use drystone_driver::Call;
use drystone_sim::{FaultMode, FaultPlan, Rule};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

struct Plan {
    ordinal: usize,
    name: String,
    nth: u64,
    is_for_ever: bool,
    status: Status,
    seen: u64,
    fired: u64,
}

/// Whether there is any plan: the only thing an ordinary call looks at.
static IS_ARMED: AtomicBool = AtomicBool::new(false);
static PLANS: Mutex<Vec<Plan>> = Mutex::new(Vec::new());

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
    if let Some(call) = call_of(name) {
        let mode = if is_for_ever { FaultMode::Forever } else { FaultMode::Once };
        device.sim.install_fault(FaultPlan { call, nth, mode, code: status.as_error_code() });
    } else {
        let name = name.to_owned();
        PLANS.lock().push(Plan { ordinal, name, nth, is_for_ever, status, seen: 0, fired: 0 });
        IS_ARMED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

pub(crate) fn clear(ordinal: usize) -> Outcome {
    process::device(ordinal)?.sim.clear_faults();
    let mut plans = PLANS.lock();
    plans.retain(|plan| plan.ordinal != ordinal);
    IS_ARMED.store(!plans.is_empty(), Ordering::Relaxed);
    Ok(())
}

/// How many calls have failed by plan since the plans were last cleared.
pub(crate) fn fired(ordinal: usize) -> u64 {
    let own: u64 =
        PLANS.lock().iter().filter(|plan| plan.ordinal == ordinal).map(|plan| plan.fired).sum();
    own + process::device(ordinal).map_or(0, |device| device.sim.faults_fired())
}

/// Fails if a plan says so.
pub(crate) fn strike(name: &str) -> Outcome {
    if !IS_ARMED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let (name, ordinal) = (base_name(name), context::current_ordinal().unwrap_or(0));
    let mut status = None;
    for plan in PLANS.lock().iter_mut() {
        if plan.ordinal != ordinal || plan.name != name {
            continue;
        }
        plan.seen += 1;
        if plan.seen == plan.nth || (plan.is_for_ever && plan.seen >= plan.nth) {
            plan.fired += 1;
            status = status.or(Some(plan.status));
        }
    }
    status.map_or(Ok(()), Err)
}
