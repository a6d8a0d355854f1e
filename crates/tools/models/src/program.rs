//! [`Program`]: an allocator with the program around it, whose kernels take time.
//!
//! Every allocation is used by one kernel on its stream, and every recorded stream by one there.
//! The host launches them and runs ahead of the device, as far as its launch queues let it; driver
//! calls take the time they cost. So a wait between streams, a host that waits and a slow call all
//! show in when the last kernel is done. Where the program was idle when recorded, or waited for
//! the device, it is and does here.
//!
//! Invariant: kernels, idle times and waits depend on the trace alone, so any two allocators that
//! serve a trace whole queue the same kernels in the same order. Kernels of a stream that is
//! captured become part of a graph, which does not run: when it does is in no trace.

use std::collections::HashMap;

use drystone_driver::{Call, Stream};
use drystone_sim::{SimConfig, SimDevice};
use drystone_trace::model::Trace;
use drystone_trace::replay::{
    self, DeviceTime, DriverCost, Layout, Options, Refusal, Remaps, Replayed, Usage,
};

use crate::work::{self, works_on_device};

/// From the end of an event's work until the host or another stream can know, in nanoseconds.
/// Assumed: interrupts and polling cost tens of microseconds.
pub const EVENT_LATENCY_NS: u64 = 20_000;

/// Kernels that a stream's queue takes: CUDA's is known to end at about 1,024.
const LAUNCH_QUEUE: usize = 1024;
/// A kernel reads or writes its block once: 2,039 GB/s is the bandwidth of an A100-80G.
const BYTES_PER_NS: u64 = 2_039;
/// The shortest kernel, in nanoseconds. Assumed: small kernels run a few microseconds.
const SHORTEST_KERNEL_NS: u64 = 5_000;
/// What the host works at most between two events, in nanoseconds. Somewhat longer gaps of a trace
/// are taken for a host that is held up by the device, whose own clock stands for that here: the
/// device is the bottleneck, as where memory is short.
const MOST_HOST_NS: u64 = 2_000;
/// Gaps of a trace from this length on, in nanoseconds, are idle times: the host waits for
/// something, and the device runs dry. Assumed: between two requests that it has at hand a host
/// works tens of microseconds.
const IDLE_NS: u64 = 1_000_000;

/// What becomes of a trace's idle times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gaps {
    /// They last as long as in the trace.
    #[default]
    Kept,
    /// They are as short as any other gap: the device is never idle.
    Shortened,
}

/// The same device with clocks that a [`Program`] needs: calls take time, and queues end.
#[must_use]
pub fn work_config(config: SimConfig) -> SimConfig {
    SimConfig { calls_take_time: true, launch_queue: LAUNCH_QUEUE, ..config }
}

/// An allocator and the program that uses it, on a device of [`work_config`].
pub struct Program {
    allocator: Box<dyn Replayed>,
    device: SimDevice,
    gaps: Gaps,
    /// The trace's time, which the device's clock does not follow.
    trace_ns: u64,
    /// Bytes of the live blocks, by address.
    sizes: HashMap<u64, u64>,
}

impl Program {
    /// A program that begins now.
    pub fn new(allocator: Box<dyn Replayed>, device: &SimDevice, gaps: Gaps) -> Self {
        Self { allocator, device: device.clone(), gaps, trace_ns: 0, sizes: HashMap::new() }
    }

    fn use_block(&mut self, bytes: u64, stream: u16) {
        self.allocator.launch(stream, (bytes / BYTES_PER_NS).max(SHORTEST_KERNEL_NS));
    }
}

impl Replayed for Program {
    fn advance(&mut self, time_ns: u64) {
        let gap_ns = time_ns.saturating_sub(self.trace_ns);
        let is_idle = self.gaps == Gaps::Kept && gap_ns >= IDLE_NS;
        self.device.advance_by(if is_idle { gap_ns } else { gap_ns.min(MOST_HOST_NS) });
        self.trace_ns = time_ns;
    }

    fn allocate(&mut self, bytes: u64, stream: u16, pool: u8) -> Result<u64, Refusal> {
        let address = self.allocator.allocate(bytes, stream, pool)?;
        self.sizes.insert(address, bytes);
        self.use_block(bytes, stream);
        Ok(address)
    }

    fn free(&mut self, address: u64) {
        self.sizes.remove(&address);
        self.allocator.free(address);
    }

    fn record_stream(&mut self, address: u64, stream: u16) {
        self.allocator.record_stream(address, stream);
        let bytes = self.sizes.get(&address).copied().unwrap_or_default();
        self.use_block(bytes, stream);
    }

    /// The use lasts as long after the free as it did when recorded.
    fn busy_until(&mut self, stream: u16, time_ns: u64) {
        let rest_ns = time_ns.saturating_sub(self.trace_ns);
        self.allocator.busy_until(stream, self.device.now_ns().saturating_add(rest_ns));
    }

    fn launch(&mut self, stream: u16, duration_ns: u64) {
        self.allocator.launch(stream, duration_ns);
    }

    fn wait_for_device(&mut self) {
        self.allocator.wait_for_device();
    }

    fn begin_capture(&mut self, stream: u16, pool: u8) {
        self.allocator.begin_capture(stream, pool);
    }

    fn join_capture(&mut self, stream: u16, origin: u16) {
        self.allocator.join_capture(stream, origin);
    }

    fn end_capture(&mut self, stream: u16, pool: u8) {
        self.allocator.end_capture(stream, pool);
    }

    fn empty_cache(&mut self) {
        self.allocator.empty_cache();
    }

    fn usage(&self) -> Usage {
        self.allocator.usage()
    }

    fn driver_cost(&self) -> DriverCost {
        self.allocator.driver_cost()
    }

    fn device_time(&self) -> Option<DeviceTime> {
        let calls = |call| self.device.calls_of(call);
        let waiting =
            [Call::SynchronizeEvent, Call::SynchronizeStream, Call::SynchronizeDevice, Call::Free];
        Some(DeviceTime {
            makespan_us: self.device.work_end_ns() as f64 / 1e3,
            stream_waits: calls(Call::Wait) + self.device.added_waits(),
            host_waits: waiting.into_iter().map(calls).sum(),
            host_waited_us: self.device.host_waited_ns() as f64 / 1e3,
        })
    }

    fn remaps(&self) -> Remaps {
        self.allocator.remaps()
    }

    fn layout(&self) -> Option<Layout> {
        self.allocator.layout()
    }
}

/// Serves everything at once and asks nothing of the driver: what no allocator can be faster than.
struct Ideal {
    device: SimDevice,
    streams: Vec<Stream>,
    next: u64,
}

impl Replayed for Ideal {
    works_on_device!(streams);

    fn allocate(&mut self, _: u64, _: u16, _: u8) -> Result<u64, Refusal> {
        self.next += 1;
        Ok(self.next)
    }

    fn free(&mut self, _: u64) {}

    fn record_stream(&mut self, _: u64, _: u16) {}

    fn wait_for_device(&mut self) {
        self.device.finish_all();
    }

    fn begin_capture(&mut self, stream: u16, _: u8) {
        work::begin_capture(&self.device, self.streams[stream as usize]);
    }

    fn end_capture(&mut self, stream: u16, _: u8) {
        // Nothing is called here that could break it.
        let _ = work::end_capture(&self.device, self.streams[stream as usize]);
    }

    fn empty_cache(&mut self) {}

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn driver_cost(&self) -> DriverCost {
        DriverCost::default()
    }
}

/// When the last kernel of a trace is done with an allocator that never waits and never stalls, in
/// microseconds.
pub fn ideal_makespan_us(trace: &Trace, gaps: Gaps) -> f64 {
    let device = SimDevice::new(work_config(SimConfig::default()));
    let streams = work::streams(&device, trace.streams);
    let ideal = Ideal { device: device.clone(), streams, next: 0 };
    let options = Options { curve_points: 1, timed_passes: 0 };
    replay::run(trace, &mut Program::new(Box::new(ideal), &device, gaps), &options);
    device.work_end_ns() as f64 / 1e3
}

#[cfg(test)]
mod tests;
