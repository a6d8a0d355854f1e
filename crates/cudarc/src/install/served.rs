//! What is served: an allocator for each device, the streams that were seen to come and go, and
//! captures under way.
//!
//! Keeps: a stream's key is kept only from its creation to its destruction, both seen, and that of
//! a default stream, which ends with its context, or its thread. About any other stream the driver
//! is asked each time, for its handle may be another's by then.
//!
//! Lock order: `streams` alone; `captured` alone. No driver call under either.

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use drystone::driver::Stream;
use drystone::{Allocator, Backend, Options, StreamId};
use drystone_cuda::{CudaDevice, CudaOptions};
use parking_lot::{Mutex, RwLock};

use super::real::{Handle, Real, SUCCESS};

/// The default stream of the current context: null, and `CU_STREAM_LEGACY`.
const LEGACY: [usize; 2] = [0, 1];
/// `CU_STREAM_PER_THREAD`: another stream in each thread.
const PER_THREAD: usize = 2;

thread_local! {
    /// The thread's own default stream, with the context it is of.
    static OWN: Cell<Option<(usize, Place)>> = const { Cell::new(None) };
}

/// A stream on the allocator that serves it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) ordinal: usize,
    pub(super) stream: StreamId,
}

pub(super) struct Served {
    pub(super) real: &'static Real,
    options: Options,
    /// By ordinal, made when a device is first used. `None`: the device cannot be served.
    heaps: Box<[OnceLock<Option<Allocator>>]>,
    /// Streams whose creation was seen, `None` until they are first allocated on; and default
    /// streams, with their context.
    streams: RwLock<HashMap<(usize, usize), Option<Place>>>,
    /// Streams whose capture was seen to begin, once for each, and how many. Threads' own streams
    /// share a handle.
    captured: Mutex<Vec<usize>>,
    captures: AtomicUsize,
}

impl Served {
    pub(super) fn new(real: &'static Real, options: Options, devices: u32) -> Self {
        Self {
            real,
            options,
            heaps: (0..devices).map(|_| OnceLock::new()).collect(),
            streams: RwLock::default(),
            captured: Mutex::default(),
            captures: AtomicUsize::new(0),
        }
    }

    /// The allocator of a device, made at the first call.
    pub(super) fn heap(&self, ordinal: usize) -> Option<&Allocator> {
        let made = self.heaps.get(ordinal)?.get_or_init(|| {
            let device = CudaDevice::open(ordinal as u32, &CudaOptions::default()).ok()?;
            let heap = Allocator::new(std::sync::Arc::new(device), &self.options).ok()?;
            // The other ways to memory lead back here.
            (heap.backend() == Backend::Vmm).then_some(heap)
        });
        made.as_ref()
    }

    /// The allocator that a live block is of.
    pub(super) fn owner(&self, address: u64) -> Option<&Allocator> {
        let mut heaps = self.heaps.iter().filter_map(|heap| heap.get()?.as_ref());
        heaps.find(|heap| heap.block_at(address).is_ok())
    }

    /// Where memory for a stream comes from. `None`: from the driver.
    pub(super) fn place(&self, stream: Handle) -> Option<Place> {
        let handle = stream.addr();
        let context = if handle <= PER_THREAD { self.current_context()?.addr() } else { 0 };
        let known = if handle == PER_THREAD {
            OWN.get().filter(|own| own.0 == context).map(|own| Some(own.1))
        } else {
            self.streams.read().get(&(context, handle)).copied()
        };
        if let Some(Some(place)) = known {
            return Some(place);
        }
        let ordinal = self.ordinal_of(stream)?;
        let id = self.heap(ordinal)?.add_stream(Stream(handle as u64)).ok()?;
        let place = Place { ordinal, stream: id };
        if handle == PER_THREAD {
            OWN.set(Some((context, place)));
        } else if LEGACY.contains(&handle) || known.is_some() {
            self.streams.write().insert((context, handle), Some(place));
        }
        Some(place)
    }

    /// The device of a stream of a primary context.
    fn ordinal_of(&self, stream: Handle) -> Option<usize> {
        let context = if stream.addr() <= PER_THREAD {
            self.current_context()?
        } else {
            let mut context = ptr::null_mut();
            // SAFETY: writes a handle; the caller's stream is alive, as it promised the driver.
            let status = unsafe { (self.real.context_of)(stream, &raw mut context) };
            (status == SUCCESS).then_some(context)?
        };
        (0..self.heaps.len()).find(|&ordinal| self.primary(ordinal) == Some(context))
    }

    fn current_context(&self) -> Option<Handle> {
        let mut context = ptr::null_mut();
        // SAFETY: writes a handle.
        let status = unsafe { (self.real.current_context)(&raw mut context) };
        (status == SUCCESS && !context.is_null()).then_some(context)
    }

    /// The primary context of a device, if anybody uses it.
    fn primary(&self, ordinal: usize) -> Option<Handle> {
        let (mut device, mut flags, mut is_active) = (0, 0, 0);
        // SAFETY: writes a device.
        let found = unsafe { (self.real.device)(&raw mut device, ordinal as i32) };
        // SAFETY: writes two numbers.
        let asked = unsafe { (self.real.state)(device, &raw mut flags, &raw mut is_active) };
        if (found, asked) != (SUCCESS, SUCCESS) || is_active == 0 {
            return None;
        }
        let mut context = ptr::null_mut();
        // SAFETY: writes a handle.
        if unsafe { (self.real.retain)(&raw mut context, device) } != SUCCESS {
            return None;
        }
        // SAFETY: retained above; others hold it, too.
        unsafe { (self.real.release)(device) };
        Some(context)
    }

    /// A stream was created.
    pub(super) fn note_created(&self, stream: Handle) {
        self.streams.write().insert((0, stream.addr()), None);
    }

    /// A stream is about to be destroyed.
    pub(super) fn note_destroyed(&self, stream: Handle) {
        self.note_ended(stream);
        let known = self.streams.write().remove(&(0, stream.addr())).flatten();
        if let Some(place) = known
            && let Some(heap) = self.heap(place.ordinal)
        {
            // It was added there, and is retired once.
            let _ = heap.retire_stream(place.stream);
        }
    }

    /// A stream is captured from now on.
    pub(super) fn note_begun(&self, stream: Handle) {
        let mut captured = self.captured.lock();
        captured.push(stream.addr());
        self.captures.store(captured.len(), Ordering::Release);
    }

    /// A capture of a stream is over, or did not begin.
    pub(super) fn note_ended(&self, stream: Handle) {
        let mut captured = self.captured.lock();
        if let Some(at) = captured.iter().position(|&one| one == stream.addr()) {
            captured.swap_remove(at);
        }
        self.captures.store(captured.len(), Ordering::Release);
    }

    /// Whether a stream is captured. Others than those seen may have joined a capture, so the
    /// driver is asked while there is any.
    pub(super) fn is_captured(&self, stream: Handle) -> bool {
        self.captures.load(Ordering::Acquire) > 0 && self.asks_captured(stream)
    }

    /// Whether the driver says so. A default stream that others' captures keep it from asking is
    /// not.
    pub(super) fn asks_captured(&self, stream: Handle) -> bool {
        let mut status = 0;
        // SAFETY: writes a number; the caller's stream is alive.
        let asked = unsafe { (self.real.is_capturing)(stream, &raw mut status) };
        asked == SUCCESS && status != 0
    }
}
