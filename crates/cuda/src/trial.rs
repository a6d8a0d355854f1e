//! The trial of holds: whether a driver's calls that map memory return while streams wait, CUDA
//! does not say. It is found out once for each device, on addresses and memory of our own, and
//! first on a stream of our own: the program's default streams, of all devices, are held only where
//! that went well, and then as every move holds them. Memory is opened to peers there as anywhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drystone_driver::{ErrorCode, Relaxed};

use crate::calls::Cuda;
use crate::failure::Failure;
use crate::gate::{Queue, Tools, next};
use crate::primary::Primary;
use crate::properties::{Access, PhysicalMemory};
use crate::trial_memory::TrialMemory;

/// How long calls that map memory may take while streams wait: else they wait for them, too.
const TRIAL: Duration = Duration::from_millis(200);

/// Whether memory is mapped, opened, copied and unmapped while streams wait. Holds take numbers
/// after this one.
///
/// Errors: the device is full, or busy, which says nothing of it.
pub(crate) fn try_out(
    cuda: &Cuda,
    primary: &Primary,
    memory: (PhysicalMemory, &[Access]),
    tools: Tools,
    defaults: &[Queue],
    number: &mut u32,
) -> Result<bool, Failure> {
    // With one queue for all streams, the first that waits is in the way of the others.
    if std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").is_ok_and(|value| value.trim() == "1") {
        return Ok(false);
    }
    // A capture that nobody told of forbids some of it to a thread that is not.
    let Ok(_relaxed) = Relaxed::enter(cuda) else {
        return Err(Failure::BUSY);
    };
    // No more is taken while the driver keeps what it was offered.
    primary.leftovers.offer_again(cuda)?;
    let mut trial = TrialMemory::default();
    let tried = trial.make(cuda, memory.0).and_then(|()| {
        let own = (primary.context, trial.make_stream(cuda)?);
        let all = [defaults, &[own]].concat();
        // The program's streams only where that went well.
        Ok(map_beside(&mut trial, cuda, memory.1, tools, next(number), &[own])?
            && map_beside(&mut trial, cuda, memory.1, tools, next(number), &all)?)
    });
    let given_back = primary.leftovers.give_back(cuda, trial);
    let tried = tried.and_then(|works| given_back.map(|()| works));
    match tried {
        Err(failure) if matches!(failure.code(), ErrorCode::OutOfMemory | ErrorCode::NotReady) => {
            Err(failure)
        }
        tried => Ok(tried.unwrap_or(false)),
    }
}

/// Maps, copies, unmaps and at last releases memory while streams wait. Whether that took no longer
/// than it may: a thread lets them go after that time.
fn map_beside(
    trial: &mut TrialMemory,
    cuda: &Cuda,
    access: &[Access],
    tools: Tools,
    number: u32,
    streams: &[Queue],
) -> Result<bool, Failure> {
    let is_done = AtomicBool::new(false);
    let tried = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let begun = Instant::now();
            while !is_done.load(Ordering::Acquire) && begun.elapsed() < TRIAL {
                thread::sleep(Duration::from_micros(100));
            }
            tools.let_go(number);
            is_done.load(Ordering::Acquire)
        });
        let tried = tools.hold(cuda, number, streams).map(|()| {
            trial.map(cuda, access)?;
            trial.copy(cuda, tools)?;
            trial.unmap(cuda)?;
            // A move by way of the host gives memory back meanwhile.
            if streams.len() > 1 { trial.release(cuda) } else { Ok(()) }
        });
        is_done.store(true, Ordering::Release);
        let is_quick = watch.join().unwrap_or(false);
        tried.map(|worked| (worked, is_quick))
    });
    match tried? {
        (Err(failure), _) if failure.code() == ErrorCode::OutOfMemory => Err(failure),
        (worked, is_quick) => Ok(is_quick && worked.is_ok()),
    }
}
