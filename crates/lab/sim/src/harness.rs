//! What the program around an allocator does to a device: moves time, makes streams, launches
//! kernels, captures, exits, forks, and tells the oracle about blocks. None of these is a driver
//! call of the allocator, so none is counted, priced or made to fail.

use crate::device::{SimDevice, locked};
use crate::memory::HostMemory;
use crate::state::Life;
use crate::stream::Context;
use crate::violation::Violation;
use drystone_driver::{CaptureMode, ErrorCode, Stream};
use std::time::Duration;

/// Time and streams.
impl SimDevice {
    /// The host's time, in nanoseconds since the device was made.
    pub fn now_ns(&self) -> u64 {
        self.inner.clock.now_ns()
    }

    /// Moves the host's time forward; does nothing when that time has passed. Takes no lock.
    pub fn advance_to(&self, time_ns: u64) {
        self.inner.clock.advance_to(time_ns);
    }

    /// Moves the host's time forward, in nanoseconds.
    pub fn advance_by(&self, duration_ns: u64) {
        self.inner.clock.advance_by(duration_ns);
    }

    /// Creates a stream. Its handle may be one that was destroyed before.
    pub fn create_stream(&self) -> Stream {
        self.create_stream_of(Context::PRIMARY)
    }

    /// The same of any context.
    pub fn create_stream_of(&self, context: Context) -> Stream {
        self.inner.state.lock().streams.create(context, false)
    }

    /// The legacy default stream of a context other than the primary one, whose is there always.
    pub fn create_default_stream_of(&self, context: Context) -> Stream {
        self.inner.state.lock().streams.create(context, true)
    }

    /// Queues a kernel that runs for `duration_ns`.
    /// Errors: `InvalidHandle`; `Other(901)` when the stream's capture is broken.
    pub fn launch(&self, stream: Stream, duration_ns: u64) -> Result<(), ErrorCode> {
        self.lock_for(stream).launch(stream, duration_ns)
    }

    /// When the work queued on the stream is done, in nanoseconds of the host's time.
    /// Errors: `InvalidHandle`.
    pub fn busy_until_ns(&self, stream: Stream) -> Result<u64, ErrorCode> {
        Ok(self.inner.state.lock().streams.get(stream)?.busy_until_ns)
    }

    /// How long synchronising calls and plain frees have blocked the host so far, in nanoseconds.
    /// What the calls themselves cost is not in it, nor is waiting for room in a launch queue.
    pub fn host_waited_ns(&self) -> u64 {
        self.inner.state.lock().host_waited_ns
    }

    /// How often the driver made a stream wait for another, to serve it from a memory pool.
    pub fn added_waits(&self) -> u64 {
        self.inner.state.lock().added_waits
    }

    /// Ends the capture that began on this stream.
    /// Errors: `InvalidHandle`, `InvalidValue` (not capturing), and by the driver's own numbers
    /// `Other(901)` broken, `Other(903)` another stream began it, `Other(904)` a stream was not
    /// joined back, `Other(908)` another thread began it. 903 and 908 leave it going.
    pub fn end_capture(&self, stream: Stream) -> Result<(), ErrorCode> {
        self.inner.state.lock().end_capture(stream).map(drop)
    }
}

/// What contexts take of the device beside what is allocated.
impl SimDevice {
    /// Whether the device has so many bytes left, which nobody takes.
    /// Errors: it has not; or what is wrong with a file of shared devices.
    pub fn check_room(&self, bytes: u64) -> Result<(), ErrorCode> {
        let mut state = self.inner.state.lock();
        state.look_at_exports();
        let free_bytes = state.memory.supply.free_bytes()?;
        if free_bytes < bytes { Err(ErrorCode::OutOfMemory) } else { Ok(()) }
    }

    /// The host reads so many bytes of files, which stay in its page cache. Nothing on a device
    /// that has memory of its own, as all that follows of the host.
    pub fn read_files(&self, bytes: u64) {
        self.change_host(|host, own_bytes| host.read_files(own_bytes, bytes));
    }

    /// Programs of the host have so many bytes from now on.
    pub fn set_host_programs(&self, bytes: u64) {
        self.change_host(|host, own_bytes| host.set_programs(own_bytes, bytes));
    }

    fn change_host(&self, change: impl FnOnce(&mut HostMemory, u64)) {
        let mut state = self.inner.state.lock();
        if let Some((host, own_bytes)) = state.memory.supply.host() {
            change(host, own_bytes);
            host.tell(own_bytes);
        }
        state.note_stop();
    }

    /// `MemFree` of the host, and the least that `MemAvailable` ever was; `None` of a device that
    /// has memory of its own.
    pub fn host_free_and_lowest_bytes(&self) -> Option<(u64, u64)> {
        let mut state = self.inner.state.lock();
        let (host, own_bytes) = state.memory.supply.host()?;
        Some((host.free_bytes(own_bytes), host.lowest_bytes()))
    }
}

/// The end of the process, and of contexts.
impl SimDevice {
    /// From now on the process is exiting: every driver call is refused, and is a violation.
    pub fn begin_exit(&self) {
        self.inner.state.lock().life = Life::Exiting;
    }

    /// From now on this is a forked child: every driver call is refused, and is a violation.
    pub fn become_forked_child(&self) {
        self.inner.state.lock().life = Life::ForkedChild;
    }

    /// Somebody has reset the device: what was there is gone. Every driver call is a violation but
    /// the question whether that is so; once it was asked, every call is refused.
    pub fn reset(&self) {
        self.inner.state.lock().life = Life::Reset { is_known: false };
    }

    /// A kernel has faulted: from now on every driver call is refused.
    pub fn lose_context(&self) {
        self.inner.state.lock().life = Life::ContextLost;
    }
}

/// The oracle. The `check_` methods do nothing on a device built without one.
impl SimDevice {
    /// An allocator has handed out a block; a kernel on `stream` uses it at once.
    pub fn check_alloc(&self, address: u64, bytes: u64, stream: Stream) {
        if self.inner.config.oracle {
            self.lock_for(stream).check_alloc(address, bytes, stream);
        }
    }

    /// A kernel on `stream` uses a live block.
    pub fn check_use(&self, address: u64, stream: Stream) {
        if self.inner.config.oracle {
            self.lock_for(stream).check_use(address, stream);
        }
    }

    /// A kernel of another device of the process uses a range of this device's memory.
    pub fn check_peer_use(&self, peer: u32, address: u64, bytes: u64) {
        if self.inner.config.oracle && !self.is_reachable_by(peer, address, bytes) {
            let violation = Violation::NotOpenToPeer { address, bytes, peer };
            self.inner.state.lock().log.add(violation);
        }
    }

    /// Somebody has registered memory by its address, such as a network card: whatever becomes of
    /// the block, the memory behind these addresses must stay until
    /// [`unregister`](Self::unregister).
    pub fn register(&self, address: u64, bytes: u64) {
        let state = &mut *self.inner.state.lock();
        state.bystanders.registered.push((address, address + bytes));
    }

    /// Nobody reaches memory any more that was registered at this address.
    pub fn unregister(&self, address: u64) {
        let state = &mut *self.inner.state.lock();
        state.bystanders.registered.retain(|&(from, _)| from != address);
    }

    /// Opens mapped memory to this device alone, as who forgets its peers does.
    /// Errors: as [`Driver::set_access`](drystone_driver::Driver::set_access).
    pub fn set_access_alone(&self, address: u64, bytes: u64) -> Result<(), ErrorCode> {
        self.inner.state.lock().memory.vm.set_access(address, bytes, 0)
    }

    /// A block is about to be freed; a last kernel uses it on every stream that used it. To be
    /// called before the allocator learns of the free.
    pub fn check_free(&self, address: u64) {
        if self.inner.config.oracle {
            let mut state = self.inner.state.lock();
            while state.is_used_on_held(address) {
                self.inner.let_go.wait_for(&mut state, Duration::from_micros(100));
            }
            state.check_free(address);
        }
    }

    /// The violations since they were last taken, the first thousand of them.
    pub fn violations(&self) -> Vec<Violation> {
        self.inner.state.lock().log.kept().to_vec()
    }
}

locked! {
    /// Destroys a stream; what it has queued still runs.
    /// Errors: `InvalidHandle` (unknown, or the default stream), `CaptureUnsupported`.
    fn destroy_stream(stream: Stream) -> Result<(), ErrorCode> = streams.destroy;
    /// When all work queued so far is done, in nanoseconds of the host's time.
    fn work_end_ns() -> u64 = streams.work_end_ns;
    /// Begins a capture by the calling thread.
    /// Errors: `InvalidHandle`, `InvalidValue` (capturing already), `CaptureUnsupported` (the
    /// default stream).
    fn begin_capture(stream: Stream, mode: CaptureMode) -> Result<(), ErrorCode> = begin_capture;
    /// A context begins, and takes so many bytes. They are missing from what is free, and are no
    /// part of [`SimDevice::physical_bytes`].
    /// Errors: `OutOfMemory`, and what is wrong with a file of shared devices.
    fn take_context_memory(bytes: u64) -> Result<(), ErrorCode> = memory.supply.take_context;
    /// Contexts that were there before this device was have so many bytes, whether there is room
    /// or not.
    /// Errors: what is wrong with a file of shared devices.
    fn keep_context_memory(bytes: u64) -> Result<(), ErrorCode> = memory.supply.keep_contexts;
    /// A context is over that took so many bytes.
    fn give_context_memory(bytes: u64) = memory.supply.give_context;
    /// What contexts have now, in bytes.
    fn context_bytes() -> u64 = memory.supply.context_bytes;
    /// A context other than the primary one ends, with its streams, whose captures are broken, and
    /// its plain memory: returned are addresses and sizes. What the streams have queued still runs:
    /// CUDA does not say that the end waits for it.
    fn destroy_context(context: Context) -> Vec<(u64, u64)> = destroy_context;
    /// How many violations there were since they were last taken.
    fn violation_count() -> u64 = log.count;
    /// The violations since they were last taken, which are forgotten.
    fn take_violations() -> Vec<Violation> = log.take;
}
