//! [`Holding`]: streams stand still while memory is mapped, and copies pass by them: those of every
//! device that has a context, since each may use the memory of each.
//!
//! Invariant: one hold at a time in the process, since two would wait for each other, and the end
//! of one ends those of its device before it, too. While one lasts, nothing is created or
//! destroyed, and nothing waits without an end. `gate` is what streams wait at, `trial` finds out
//! whether a driver can do it at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use drystone_driver::{CaptureStatus, Hold, Stream};
use parking_lot::Mutex;

use crate::calls::Cuda;
use crate::current::Current;
use crate::failure::Failure;
use crate::gate::{COPIES, LEGACY, Queue, Tools, next, wait_until};
use crate::primary::Primary;
use crate::properties::{Access, PhysicalMemory};
use crate::trial;

/// Whether streams stand still, or are about to, whichever device asks for it.
static IS_HELD: AtomicBool = AtomicBool::new(false);

const NOT_SUPPORTED: Failure = Failure { number: Failure::NOT_SUPPORTED, name: "" };

/// What is known of a device, and what it has.
#[derive(Default)]
struct State {
    tools: Option<Tools>,
    /// Whether holds work, once that was tried.
    works: Option<bool>,
    /// Of the last hold.
    number: u32,
}

/// Of one device.
pub(crate) struct Holding {
    memory: PhysicalMemory,
    state: Mutex<State>,
}

impl State {
    /// Finds out, once, what the device can do. One that is full or busy says nothing.
    fn find_out(
        &mut self,
        cuda: &Cuda,
        primary: &Primary,
        (memory, access): (PhysicalMemory, &[Access]),
        defaults: &[Queue],
    ) -> Result<Tools, Failure> {
        let tools = match self.tools {
            Some(tools) => tools,
            None => *self.tools.insert(Tools::new(cuda)?),
        };
        if self.works.is_none() {
            let number = &mut self.number;
            let works = trial::try_out(cuda, primary, (memory, access), tools, defaults, number)?;
            primary.cannot_hold.store(!works, Ordering::Relaxed);
            self.works = Some(works);
        }
        if self.works == Some(true) { Ok(tools) } else { Err(NOT_SUPPORTED) }
    }
}

impl Holding {
    pub(crate) fn new(memory: PhysicalMemory) -> Self {
        Self { memory, state: Mutex::default() }
    }

    /// Holds these streams, and the default one of each device, once no other hold lasts. What
    /// memory is to be opened to, a trial opens it to, too.
    pub(crate) fn hold(
        &self,
        cuda: &Cuda,
        primary: &Primary,
        access: &[Access],
        streams: &[Stream],
    ) -> Result<Hold, Failure> {
        let queues = queues(cuda, primary, streams)?;
        wait_until(Instant::now() + COPIES, || Ok(!IS_HELD.swap(true, Ordering::Acquire)))?;
        self.hold_all(cuda, primary, access, &queues).inspect_err(|_| end())
    }

    fn hold_all(
        &self,
        cuda: &Cuda,
        primary: &Primary,
        access: &[Access],
        (defaults, held): &(Vec<Queue>, Vec<Queue>),
    ) -> Result<Hold, Failure> {
        let mut state = self.state.lock();
        let tools = state.find_out(cuda, primary, (self.memory, access), defaults)?;
        let others: Vec<Queue> =
            held.iter().copied().filter(|queue| queue.0 != primary.context).collect();
        tools.pass(cuda, next(&mut state.number), &others)?;
        let number = next(&mut state.number);
        tools.hold(cuda, number, held)?;
        Ok(Hold(number.into()))
    }

    /// Lets the streams of a hold go.
    pub(crate) fn let_go(&self, hold: &Hold) {
        if let Some(tools) = self.state.lock().tools {
            tools.let_go(hold.0 as u32);
            end();
        }
    }

    /// Whether streams stand still.
    pub(crate) fn is_held(&self) -> bool {
        IS_HELD.load(Ordering::Relaxed)
    }

    /// What holds are made with, once it is known that they work.
    fn working(&self) -> Option<Tools> {
        let state = self.state.lock();
        state.tools.filter(|_| state.works == Some(true))
    }

    /// Begins a copy, on a stream of its own.
    pub(crate) fn copy(&self, cuda: &Cuda, to: u64, from: u64, bytes: u64) -> Result<(), Failure> {
        self.working().ok_or(NOT_SUPPORTED)?.copy(cuda, to, from, bytes)
    }

    /// Waits until all copies are complete.
    pub(crate) fn finish_copies(&self, cuda: &Cuda) -> Result<(), Failure> {
        self.working().map_or(Ok(()), |tools| tools.finish_copies(cuda))
    }
}

/// The hold is over, or failed.
fn end() {
    IS_HELD.store(false, Ordering::Release);
}

/// The default stream of each context, the own one first; and with them these streams, but those
/// that stand still with a default one. Refuses what is captured: a hold would become part of the
/// graph; and no default stream must be used beside a capture that would wait for it.
fn queues(
    cuda: &Cuda,
    primary: &Primary,
    streams: &[Stream],
) -> Result<(Vec<Queue>, Vec<Queue>), Failure> {
    let mut defaults = vec![(primary.context, LEGACY)];
    let mut add = |context| {
        if defaults.iter().all(|one| one.0 != context) {
            defaults.push((context, LEGACY));
        }
    };
    for other in Primary::all(cuda)? {
        if other.cannot_hold.load(Ordering::Relaxed) {
            return Err(NOT_SUPPORTED);
        }
        add(other.context);
    }
    let mut created = Vec::new();
    for stream in streams.iter().map(|stream| stream.0) {
        refuse_captured(cuda, stream)?;
        let of = cuda.stream_context(stream)?;
        let context = if of.is_none() { primary.context } else { of };
        add(context);
        if !cuda.is_blocking(stream)? {
            created.push((context, stream));
        }
    }
    for &(context, legacy) in &defaults {
        let _current = Current::enter(cuda, context)?;
        refuse_captured(cuda, legacy)?;
    }
    // The default streams first: one that they wait for would wait for them, were it held before.
    let held = [&defaults[..], &created].concat();
    Ok((defaults, held))
}

fn refuse_captured(cuda: &Cuda, stream: u64) -> Result<(), Failure> {
    match cuda.capture_status(stream)? {
        CaptureStatus::None => Ok(()),
        _ => Err(Failure { number: Failure::STREAM_CAPTURE_IMPLICIT, name: "" }),
    }
}
