//! [`Holding`]: streams of a device stand still while memory is mapped, and copies pass by them.
//!
//! Invariant: one hold at a time, since the end of one ends those before it, too. While one lasts,
//! nothing is created or destroyed, and nothing waits without an end. `gate` is what streams wait
//! at, `trial` finds out whether a driver can do it at all.

use drystone_driver::{CaptureStatus, Hold, Stream};
use parking_lot::Mutex;

use crate::calls::Cuda;
use crate::failure::Failure;
use crate::gate::{LEGACY, Tools};
use crate::properties::PhysicalMemory;
use crate::trial;
use crate::trial_memory::Leftovers;

/// What is known of a device, and what it has.
#[derive(Default)]
struct State {
    tools: Option<Tools>,
    /// Whether holds work, once that was tried.
    works: Option<bool>,
    /// Of the last hold.
    number: u32,
    is_held: bool,
}

impl State {
    /// What holds are made with, once it is known that they work.
    fn working(&self) -> Result<Tools, Failure> {
        let tools = self.tools.filter(|_| self.works == Some(true));
        tools.ok_or(Failure { number: Failure::NOT_SUPPORTED, name: "" })
    }

    /// Finds out, once, what the device can do. One that is full or busy says nothing.
    fn find_out(
        &mut self,
        cuda: &Cuda,
        leftovers: &Leftovers,
        memory: PhysicalMemory,
    ) -> Result<(), Failure> {
        if self.works.is_some() {
            return Ok(());
        }
        let tools = match self.tools {
            Some(tools) => tools,
            None => *self.tools.insert(Tools::new(cuda)?),
        };
        let works = trial::try_out(cuda, leftovers, memory, tools, &mut self.number)?;
        self.works = Some(works);
        Ok(())
    }
}

/// Of one device.
pub(crate) struct Holding {
    memory: PhysicalMemory,
    state: Mutex<State>,
}

impl Holding {
    pub(crate) fn new(memory: PhysicalMemory) -> Self {
        Self { memory, state: Mutex::default() }
    }

    /// Holds these streams and the context's default one.
    pub(crate) fn hold(
        &self,
        cuda: &Cuda,
        leftovers: &Leftovers,
        streams: &[Stream],
    ) -> Result<Hold, Failure> {
        check_captures(cuda, streams)?;
        let mut state = self.state.lock();
        if state.is_held {
            return Err(Failure { number: Failure::NOT_READY, name: "CUDA_ERROR_NOT_READY" });
        }
        state.find_out(cuda, leftovers, self.memory)?;
        let tools = state.working()?;
        // The default stream first: one that it waits for would wait for it, were it held before.
        // What waits for the default stream stands still with it.
        let mut held = vec![LEGACY];
        for stream in streams {
            if !cuda.is_blocking(stream.0)? {
                held.push(stream.0);
            }
        }
        state.number = state.number.wrapping_add(1);
        tools.hold(cuda, state.number, &held)?;
        state.is_held = true;
        Ok(Hold(state.number.into()))
    }

    /// Lets the streams of a hold go.
    pub(crate) fn let_go(&self, hold: &Hold) {
        let mut state = self.state.lock();
        if let Some(tools) = state.tools {
            tools.let_go(hold.0 as u32);
            state.is_held = false;
        }
    }

    /// Whether streams stand still.
    pub(crate) fn is_held(&self) -> bool {
        self.state.lock().is_held
    }

    /// Begins a copy, on a stream of its own.
    pub(crate) fn copy(&self, cuda: &Cuda, to: u64, from: u64, bytes: u64) -> Result<(), Failure> {
        let tools = self.state.lock().working()?;
        tools.copy(cuda, to, from, bytes)
    }

    /// Waits until all copies are complete.
    pub(crate) fn finish_copies(&self, cuda: &Cuda) -> Result<(), Failure> {
        let tools = self.state.lock().working();
        tools.map_or(Ok(()), |tools| tools.finish_copies(cuda))
    }
}

/// Refuses what is captured: it would become part of the graph; and the default stream must not be
/// used beside a capture that would wait for it.
fn check_captures(cuda: &Cuda, streams: &[Stream]) -> Result<(), Failure> {
    for stream in streams.iter().map(|stream| stream.0).chain([LEGACY]) {
        if cuda.capture_status(stream)? != CaptureStatus::None {
            return Err(Failure { number: Failure::STREAM_CAPTURE_IMPLICIT, name: "" });
        }
    }
    Ok(())
}
