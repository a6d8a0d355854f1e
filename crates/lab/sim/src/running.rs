//! Kernels that run until something happens that is none of the device's: another rank launches its
//! part of a collective, say. A stream that runs one comes to no stop, and who waits for it waits.
//!
//! Events that are recorded behind one do not wait for it.

use crate::device::SimDevice;
use crate::held::{Gate, PATIENCE};
use crate::state::State;
use crate::violation::Violation;
use drystone_driver::{ErrorCode, Hold, Stream};
use std::time::{Duration, Instant};

/// How long the host waits for a kernel before that counts as forever.
const FOR_EVER: Duration = Duration::from_secs(10);

impl State {
    /// Whether a kernel runs on one of these streams, or on any.
    pub(crate) fn runs(&mut self, streams: Option<&[Stream]>) -> bool {
        self.running.retain(|(_, gate)| !(gate.0)());
        let is_meant = |stream: &Stream| streams.is_none_or(|all| all.contains(stream));
        self.running.iter().any(|(stream, _)| is_meant(stream))
    }
}

impl SimDevice {
    /// Queues a kernel that runs until a gate opens. Where the stream is held it is not launched
    /// before that is over.
    /// Errors: `InvalidHandle`; `Other(901)` when the stream's capture is broken.
    pub fn launch_until(&self, stream: Stream, gate: Gate) -> Result<(), ErrorCode> {
        let mut state = self.lock_for(stream);
        state.launch(stream, 0)?;
        state.running.push((stream, gate));
        Ok(())
    }

    /// Blocks the host until no kernel runs on these streams, or on any, nor do they stand still
    /// since the calling thread holds them: which lasts forever, if it does so by a call.
    pub(crate) fn wait_for_kernels(&self, streams: Option<&[Stream]>, function: &'static str) {
        let mut state = self.inner.state.lock();
        let begun = Instant::now();
        while state.runs(streams) || state.holds_itself(streams) {
            if state.holds_by_call() || begun.elapsed() > FOR_EVER {
                state.log.add(Violation::WaitsForItself { function });
                break;
            }
            self.inner.let_go.wait_for(&mut state, Duration::from_micros(100));
        }
    }

    /// Streams that were told to stop do so within their time, or go on.
    pub(crate) fn come_to_a_stop(&self, hold: Hold, streams: &[Stream]) -> Result<Hold, ErrorCode> {
        let mut state = self.inner.state.lock();
        let begun = Instant::now();
        while state.runs(Some(streams)) {
            if begun.elapsed() >= PATIENCE {
                state.let_go(&hold);
                drop(state);
                self.inner.let_go.notify_all();
                return Err(ErrorCode::NotReady);
            }
            self.inner.let_go.wait_for(&mut state, Duration::from_micros(100));
        }
        state.see_idle(streams)?;
        Ok(hold)
    }

    /// Whether streams have come to a stop within their time that others hold, or a kernel.
    pub(crate) fn comes_by(&self, streams: &[Stream], most: Duration) -> bool {
        let mut state = self.inner.state.lock();
        let begun = Instant::now();
        while state.runs(Some(streams)) || state.holds_one_of(streams) {
            if begun.elapsed() >= most {
                return false;
            }
            self.inner.let_go.wait_for(&mut state, Duration::from_micros(100));
        }
        true
    }
}
