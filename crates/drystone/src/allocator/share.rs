//! Memory for other processes, and theirs.

use std::ops::Range;
use std::sync::Arc;

use drystone_core::{BlockState, SegmentKind, Shared, SharedBy};
use drystone_driver::Descriptor;

use super::Allocator;
use crate::backend::BackendState;
use crate::engine::Engine;
use crate::share::{Behind, Exported, ShareError};

impl Allocator {
    /// The physical memory of the live block that starts at an address, for other processes to
    /// import: a descriptor for each handle. They are for the program to send, over a socket or as
    /// numbers for `pidfd_getfd`. The block must stay live for as long as others use it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use drystone::{Allocator, Options};
    /// # use drystone_driver::Stream;
    /// # use drystone_sim::{SimConfig, SimDevice};
    /// # let device = SimDevice::new(SimConfig::default());
    /// # let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
    /// # let stream = allocator.add_stream(Stream::DEFAULT)?;
    /// let block = allocator.allocate(stream, 32 << 20)?;
    /// let exported = allocator.export(block.address())?;
    /// // Elsewhere:
    /// let handles = exported.handles.iter().map(|handle| (&*handle.descriptor, handle.bytes));
    /// let imported = allocator.import(&handles.collect::<Vec<_>>())?;
    /// assert!(imported.bytes() >= exported.offset_bytes + block.bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such block, or its memory has no descriptors.
    pub fn export(&self, address: u64) -> Result<Exported, ShareError> {
        self.engine.export(address)
    }

    /// Calls for each descriptor that this allocator keeps: those of memory that other processes
    /// know, and of memory that they gave. A forked child has all of them open, too, and is to
    /// close them: they keep the memory. Waits for no lock, so that it is told of none while
    /// another thread was at them.
    pub fn each_descriptor(&self, call: &mut dyn FnMut(&Descriptor)) {
        if let Some(handles) = self.engine.executor.handles.try_lock() {
            handles.descriptors().for_each(call);
        }
    }

    /// The addresses that the driver would take for one allocation, in mapped memory: those of the
    /// live block around an address; or in a private pool all that lie beside it and lead to
    /// memory, since a graph still uses what was freed while it was captured. Looks through all
    /// blocks.
    pub fn allocation_around(&self, address: u64) -> Option<Range<u64>> {
        let holds = |start: u64, bytes: u64| start <= address && address - start < bytes;
        let segments = self.snapshot();
        let segment = segments.iter().find(|one| holds(one.address, one.bytes))?;
        let (start, bytes) = match &self.engine.backend {
            _ if segment.kind != SegmentKind::Mapped => return None,
            // Windows that are idle, too, and memory at home that a window has (I12).
            BackendState::Heap(heap) if segment.pool != 0 => {
                let mapped = heap.read().mapped_ranges();
                mapped.into_iter().find(|&(start, bytes)| holds(start, bytes))?
            }
            _ => {
                let mut live = segment.blocks.iter().filter(|one| one.state == BlockState::Live);
                let block = live.find(|one| holds(one.address, one.bytes))?;
                (block.address, block.requested_bytes)
            }
        };
        Some(start..start + bytes)
    }

    /// As [`export`](Self::export), of the memory behind addresses of one segment, as
    /// [`allocation_around`](Self::allocation_around) tells them.
    ///
    /// # Errors
    /// They lead to no memory throughout, or to such as has no descriptors.
    pub fn export_range(&self, addresses: Range<u64>) -> Result<Exported, ShareError> {
        self.engine.export_range(addresses)
    }

    /// Leaves the memory behind addresses of one segment where it is, as if it was exported: for
    /// whoever has found out by a call which memory that is. False if it is none of this
    /// allocator's.
    pub fn keep_in_place(&self, addresses: Range<u64>, by: SharedBy) -> bool {
        self.engine.keep_in_place(addresses, by)
    }

    /// Gives the live block around an address one handle of physical memory, if several back it and
    /// live memory may move; and leaves what is there where it is, as if it was exported. For who
    /// asks the driver which allocation the address lies in: that tells of one handle. `None` if
    /// there is no such block of mapped memory.
    pub fn make_whole(&self, address: u64) -> Option<Behind> {
        self.engine.make_whole(address)
    }

    /// Which memory others know, and does not move while it is live: by the call that made it
    /// known. Looks through all of it.
    pub fn shared(&self) -> Vec<Shared> {
        match &self.engine.backend {
            BackendState::Heap(heap) => heap.read().shared(),
            BackendState::AsyncPools(_) => Vec::new(),
        }
    }

    /// Maps memory of another process, each handle by its descriptor and its size in bytes, beside
    /// each other. The descriptors stay the caller's, and may be closed at once. The memory is in
    /// no statistics: the process that made it counts it.
    ///
    /// # Errors
    /// A descriptor leads to no memory of this device, or to some of another size.
    pub fn import(&self, handles: &[(&Descriptor, u64)]) -> Result<Imported, ShareError> {
        let (address, bytes) = self.engine.import(handles)?;
        Ok(Imported { engine: Arc::clone(&self.engine), address, bytes })
    }
}

/// Memory of another process, closed when dropped: that waits until the device is idle, or during a
/// capture leaves it to the next that is closed, or the next trim.
pub struct Imported {
    engine: Arc<Engine>,
    address: u64,
    bytes: u64,
}

impl Imported {
    /// Where it starts in this process.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// The size of all handles.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        // It was imported and not closed yet.
        let _ = self.engine.close_import(self.address);
    }
}

impl std::fmt::Debug for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (address, bytes) = (self.address, self.bytes);
        f.debug_struct("Imported").field("address", &address).field("bytes", &bytes).finish()
    }
}
