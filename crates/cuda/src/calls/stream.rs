//! Streams and captures.

use std::ptr;

use drystone_driver::{CaptureMode, CaptureModes, CaptureStatus};

use super::{Context, Cuda, pointer};
use crate::failure::Failure;

/// `CUstreamCaptureStatus`; any other is that of a capture that is broken.
const NOT_CAPTURING: u32 = 0;
const CAPTURING: u32 = 1;

/// CUDA 12.5, from which on the context of a stream may be asked for while it is being captured
/// (NVIDIA/cuda-python, `_get_conditional_context`), and green contexts can be told from others.
pub(crate) const TELLS_CONTEXT_IN_CAPTURE: u32 = 12_050;

impl Cuda {
    pub(crate) fn synchronize_stream(&self, stream: u64) -> Result<(), Failure> {
        // SAFETY: the handle is the driver's.
        self.check(unsafe { (self.table.cuStreamSynchronize)(pointer(stream)) })
    }

    /// The context that a stream was made in; of a green context's the primary one, where the
    /// driver tells. Before [`TELLS_CONTEXT_IN_CAPTURE`] not to be asked of one that is being
    /// captured.
    pub(crate) fn stream_context(&self, stream: u64) -> Result<Context, Failure> {
        let (mut context, mut green) = (ptr::null_mut(), ptr::null_mut());
        let (table, stream) = (&self.table, pointer(stream));
        // SAFETY: writes two pointers.
        let mut told =
            unsafe { (table.cuStreamGetCtx_v2)(stream, &raw mut context, &raw mut green) };
        if told == Failure::NOT_SUPPORTED {
            // SAFETY: writes one pointer.
            told = unsafe { (table.cuStreamGetCtx)(stream, &raw mut context) };
        }
        self.check(told)?;
        Ok(Context(context.expose_provenance()))
    }

    /// The driver's identity of a stream. Not to be asked of one that is being captured: that may
    /// break the capture.
    pub(crate) fn stream_id(&self, stream: u64) -> Result<u64, Failure> {
        let mut id = 0;
        // SAFETY: writes one number.
        self.check(unsafe { (self.table.cuStreamGetId)(pointer(stream), &raw mut id) })?;
        Ok(id)
    }

    pub(crate) fn capture_status(&self, stream: u64) -> Result<CaptureStatus, Failure> {
        let mut status = 0;
        // SAFETY: writes one number.
        self.check(unsafe { (self.table.cuStreamIsCapturing)(pointer(stream), &raw mut status) })?;
        Ok(match status {
            NOT_CAPTURING => CaptureStatus::None,
            CAPTURING => CaptureStatus::Active,
            _ => CaptureStatus::Invalidated,
        })
    }
}

impl CaptureModes for Cuda {
    type Error = Failure;

    /// Belongs to the thread, whatever context is current.
    fn exchange(&self, mode: CaptureMode) -> Result<CaptureMode, Failure> {
        let mut mode = mode as u32;
        // SAFETY: reads one of three numbers, and writes one.
        self.check(unsafe { (self.table.cuThreadExchangeStreamCaptureMode)(&raw mut mode) })?;
        Ok(CaptureMode::numbered(mode))
    }
}
