//! Streams and captures.

use cudarc::driver::sys::{self, CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status};
use drystone_driver::{CaptureMode, CaptureStatus};

use super::{Cuda, check, pointer};
use crate::failure::Failure;

impl Cuda {
    pub(crate) fn synchronize_stream(&self, stream: u64) -> Result<(), Failure> {
        // SAFETY: the handle is the driver's.
        check(unsafe { sys::cuStreamSynchronize(pointer(stream)) })
    }

    /// The driver's identity of a stream. Not to be asked of one that is being captured: that may
    /// break the capture.
    pub(crate) fn stream_id(&self, stream: u64) -> Result<u64, Failure> {
        let mut id = 0;
        // SAFETY: writes one number.
        check(unsafe { sys::cuStreamGetId(pointer(stream), &raw mut id) })?;
        Ok(id)
    }

    pub(crate) fn capture_status(&self, stream: u64) -> Result<CaptureStatus, Failure> {
        let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: writes one of the three values that the type has.
        check(unsafe { sys::cuStreamIsCapturing(pointer(stream), &raw mut status) })?;
        Ok(match status {
            Status::CU_STREAM_CAPTURE_STATUS_NONE => CaptureStatus::None,
            Status::CU_STREAM_CAPTURE_STATUS_ACTIVE => CaptureStatus::Active,
            Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED => CaptureStatus::Invalidated,
        })
    }

    /// Belongs to the thread, whatever context is current.
    pub(crate) fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode, Failure> {
        let mut mode = match mode {
            CaptureMode::Global => Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CaptureMode::ThreadLocal => Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CaptureMode::Relaxed => Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
        };
        // SAFETY: reads one of the three values that the type has, and writes one.
        check(unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode) })?;
        Ok(match mode {
            Mode::CU_STREAM_CAPTURE_MODE_GLOBAL => CaptureMode::Global,
            Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => CaptureMode::ThreadLocal,
            Mode::CU_STREAM_CAPTURE_MODE_RELAXED => CaptureMode::Relaxed,
        })
    }
}
