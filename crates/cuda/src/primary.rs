//! [`Primary`]: a device's primary context, retained once between two resets and never released.
//!
//! Every `CudaDevice` of an ordinal shares it, with all other users of the device: the CUDA runtime
//! and cudarc use it, too. Never released: at exit the driver may be gone before us, and in the
//! middle of a program the context costs more to make anew than to keep. Who resets the device
//! takes it away all the same, with all that was in it; its id tells, and from then on no call is
//! made.

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use drystone_driver::{CaptureStatus, ErrorCode, Relaxed, Stream, StreamUid};
use parking_lot::Mutex;

use crate::calls::{Context, Cuda, DeviceId, TELLS_CONTEXT_IN_CAPTURE};
use crate::current::Current;
use crate::failure::Failure;
use crate::open_error::OpenError;
use crate::process;
use crate::trial_memory::Leftovers;

/// What all users of a device in this process share.
pub(crate) struct Primary {
    pub(crate) ordinal: u32,
    pub(crate) device: DeviceId,
    pub(crate) context: Context,
    /// The driver's id of the context, where it could be asked.
    id: Option<u64>,
    is_reset: AtomicBool,
    /// The other devices on whose streams memory of this one was seen to be used.
    visitors: Mutex<Vec<&'static Primary>>,
    /// What trials made and the driver did not take back.
    pub(crate) leftovers: Leftovers,
    /// Its streams cannot be held while memory is mapped.
    pub(crate) cannot_hold: AtomicBool,
}

/// One for each device that was opened, and one more for each reset after which it was again.
static PRIMARIES: Mutex<Vec<&'static Primary>> = Mutex::new(Vec::new());

impl Primary {
    /// The device's, made at the first call.
    pub(crate) fn of(cuda: &Cuda, ordinal: u32) -> Result<&'static Primary, OpenError> {
        let count = cuda.device_count().map_err(|failure| failure.at_open("cuDeviceGetCount"))?;
        match count {
            0 => return Err(OpenError::NoDevice),
            _ if ordinal >= count => return Err(OpenError::NoSuchDevice { ordinal, count }),
            _ => {}
        }
        let mut primaries = PRIMARIES.lock();
        // Of a device that was reset it is made anew: who opened it before keeps the dead one.
        let newest = primaries.iter().copied().rfind(|one| one.ordinal == ordinal);
        if let Some(primary) = newest.filter(|primary| primary.check(cuda).is_ok()) {
            return Ok(primary);
        }
        let device = cuda.device(ordinal).map_err(|failure| failure.at_open("cuDeviceGet"))?;
        let context = cuda
            .retain_primary_context(device)
            .map_err(|failure| failure.at_open("cuDevicePrimaryCtxRetain"))?;
        // The driver may have registered an exit handler with its first context.
        process::watch_exit();
        let id = identity(cuda, device).ok().flatten();
        // Kept as long as the process, as the context is.
        let primary: &'static Primary = Box::leak(Box::new(Primary {
            ordinal,
            device,
            context,
            id,
            is_reset: AtomicBool::new(false),
            visitors: Mutex::default(),
            leftovers: Leftovers::default(),
            cannot_hold: AtomicBool::new(false),
        }));
        primaries.push(primary);
        Ok(primary)
    }

    /// Those of all devices that have one, whoever made it: a copy on its default stream may be
    /// from or to the memory of any device.
    pub(crate) fn all(cuda: &Cuda) -> Result<Vec<&'static Self>, Failure> {
        let mut all = Vec::new();
        for ordinal in 0..cuda.device_count()? {
            if cuda.has_primary_context(cuda.device(ordinal)?)? {
                all.push(Self::of(cuda, ordinal).map_err(|_| Failure::BUSY)?);
            }
        }
        Ok(all)
    }

    /// Refuses every call once the device was found reset.
    #[inline]
    pub(crate) fn refuse_reset(&self) -> Result<(), ErrorCode> {
        if self.is_reset.load(Ordering::Relaxed) { Err(ErrorCode::DeviceReset) } else { Ok(()) }
    }

    /// Finds out whether the context is the one that was retained.
    pub(crate) fn check(&self, cuda: &Cuda) -> Result<(), ErrorCode> {
        self.refuse_reset()?;
        // Where nobody can say, nothing has shown that it is not.
        let is_other = match (self.id, identity(cuda, self.device)) {
            (Some(own), Ok(now)) => now != Some(own),
            _ => false,
        };
        if is_other {
            self.is_reset.store(true, Ordering::Relaxed);
        }
        self.refuse_reset()
    }

    /// Who has a handle now. Whether the driver's ids of default streams differ between devices is
    /// not documented, so the ordinal is made part of them. `None`: the stream is being captured,
    /// and the question might break that; or it is a default stream, and another's capture forbids
    /// to ask. The context is current.
    pub(crate) fn uid(&self, cuda: &Cuda, stream: u64) -> Result<Option<StreamUid>, Failure> {
        match cuda.capture_status(stream) {
            Ok(CaptureStatus::None) => {}
            Err(failure) if failure.number != Failure::STREAM_CAPTURE_IMPLICIT => {
                return Err(failure);
            }
            _ => return Ok(None),
        }
        // The legacy default stream has two handles.
        let id = cuda.stream_id(stream.max(1))?;
        let is_default = stream <= Stream::PER_THREAD.0;
        let of_device = if is_default { u64::from(self.ordinal) << 48 } else { 0 };
        Ok(Some(StreamUid(id ^ of_device)))
    }

    /// Whether a wait for the device is one for this stream, too. If it is of another device's
    /// primary context, that is waited for from now on. The context is current.
    #[cold]
    pub(crate) fn covers(&self, cuda: &Cuda, stream: u64) -> Option<bool> {
        // Their handles mean streams of the context that is current.
        if stream <= Stream::PER_THREAD.0 {
            return Some(true);
        }
        let is_free = || cuda.capture_status(stream).is_ok_and(|one| one == CaptureStatus::None);
        if cuda.version < TELLS_CONTEXT_IN_CAPTURE && !is_free() {
            return None;
        }
        let of = cuda.stream_context(stream).ok()?;
        if of == self.context {
            return Some(true);
        }
        let known = PRIMARIES.lock().iter().copied().rfind(|one| one.context == of);
        let find = || {
            // Made by others: whose it is tells the device, if it is its primary one at all.
            let _current = Current::enter(cuda, of).ok()?;
            let primary = Self::of(cuda, cuda.current_device().ok()?).ok()?;
            (primary.context == of).then_some(primary)
        };
        let Some(visitor) = known.or_else(find) else { return Some(false) };
        let mut visitors = self.visitors.lock();
        if visitors.iter().all(|one| !ptr::eq(*one, visitor)) {
            visitors.push(visitor);
        }
        Some(true)
    }

    /// No event could be recorded on a stream that the caller knows. If no wait for the device
    /// covers it, its work is waited for now.
    #[cold]
    pub(crate) fn wait_out(&self, cuda: &Cuda, stream: u64) {
        // Captures forbid both calls to a thread that is not.
        let _relaxed = Relaxed::enter(cuda);
        if self.covers(cuda, stream) == Some(false) {
            let _ = cuda.synchronize_stream(stream);
        }
    }

    /// Waits until the device is idle, and what others do with its memory is done, too: the driver
    /// waits for one context alone. The context is current.
    pub(crate) fn synchronize(&self, cuda: &Cuda) -> Result<(), Failure> {
        cuda.synchronize_context()?;
        let visitors = self.visitors.lock().clone();
        // What was queued on a device that was reset since is over.
        for visitor in visitors.into_iter().filter(|one| one.check(cuda).is_ok()) {
            let _current = visitor.enter(cuda)?;
            cuda.synchronize_context()?;
        }
        Ok(())
    }

    /// The ordinal as the driver counts.
    pub(crate) const fn location(&self) -> i32 {
        self.ordinal.cast_signed()
    }

    #[inline]
    pub(crate) fn enter<'a>(&self, cuda: &'a Cuda) -> Result<Current<'a>, Failure> {
        Current::enter(cuda, self.context)
    }
}

/// The id of the device's primary context. Nobody has told that captures permit the question to a
/// thread that is not relaxed; one without a context cannot be, and need not.
fn identity(cuda: &Cuda, device: DeviceId) -> Result<Option<u64>, Failure> {
    match Relaxed::enter(cuda) {
        Err(failure) if !Failure::WITHOUT_CONTEXT.contains(&failure.number) => Err(failure),
        _relaxed => cuda.primary_context_id(device),
    }
}
