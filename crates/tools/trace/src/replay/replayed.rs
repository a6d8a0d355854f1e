//! What an allocator under replay must offer.

use super::layout::Layout;
use crate::metrics::{DeviceTime, DriverCost, Remaps};

/// How much memory an allocator uses at this moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// After rounding: what live blocks occupy.
    pub allocated_bytes: u64,
    /// Physical memory held from the driver.
    pub reserved_bytes: u64,
}

/// The allocator could not serve a request; it stays usable. The text is its own message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The allocator's own out-of-memory message.
    pub message: String,
}

/// An allocator under replay, on one device.
///
/// The engine calls [`advance`](Self::advance) before an event, so that the device's clock follows
/// the trace; addresses are the engine's only handle to a block.
pub trait Replayed {
    /// Moves the device's clock forward to the trace's time, in nanoseconds since the first event.
    fn advance(&mut self, time_ns: u64);

    /// Allocates on a stream from a pool, both dense numbers of the trace. Returns the address.
    fn allocate(&mut self, bytes: u64, stream: u16, pool: u8) -> Result<u64, Refusal>;

    /// Frees a live block.
    fn free(&mut self, address: u64);

    /// A live block is also used on another stream.
    fn record_stream(&mut self, address: u64, stream: u16);

    /// The work queued on `stream` by now will keep it busy until `time_ns`. Called before the free
    /// of a block whose use there was seen to last that long when the trace was recorded. Does
    /// nothing by default: for allocators on a device without clocks.
    fn busy_until(&mut self, _stream: u16, _time_ns: u64) {}

    /// Queues a kernel of the program on a stream. Does nothing by default, as above.
    fn launch(&mut self, _stream: u16, _duration_ns: u64) {}

    /// The program waits until the device is idle. Does nothing by default, as above.
    fn wait_for_device(&mut self) {}

    /// The program begins to capture a stream, and the pool serves what it asks for there. Does
    /// nothing by default, as above.
    fn begin_capture(&mut self, _stream: u16, _pool: u8) {}

    /// Another stream takes part in the capture that began on `origin`, from now on. Does nothing
    /// by default, as above.
    fn join_capture(&mut self, _stream: u16, _origin: u16) {}

    /// The capture that began on the stream is over. Does nothing by default, as above.
    fn end_capture(&mut self, _stream: u16, _pool: u8) {}

    /// Gives unused memory back to the device.
    fn empty_cache(&mut self);

    /// What is in use and held now. Must be cheap: it is read after every allocation.
    fn usage(&self) -> Usage;

    /// What the driver has cost so far. Read before and after every request of the measured pass.
    fn driver_cost(&self) -> DriverCost;

    /// How the program has fared so far; `None` where its kernels are not modelled.
    fn device_time(&self) -> Option<DeviceTime> {
        None
    }

    /// What was moved so far. Read at the ends of iterations, or of parts of the trace.
    fn remaps(&self) -> Remaps {
        Remaps::default()
    }

    /// The address map at this moment, sorted by address; `None` where the allocator has none to
    /// show. Need not be cheap: it is read a few times in a run, for pictures and snapshots.
    fn layout(&self) -> Option<Layout> {
        None
    }
}
