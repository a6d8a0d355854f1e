//! [`DriverError`]: which call failed, with which code, on what figures.

use crate::Call;

/// Why a driver call failed: the codes the layers above tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The device has not enough memory, or the driver ran out of mappings
    /// (`CUDA_ERROR_OUT_OF_MEMORY`).
    #[error("out of memory")]
    OutOfMemory,
    /// An argument was refused (`CUDA_ERROR_INVALID_VALUE`).
    #[error("invalid value")]
    InvalidValue,
    /// A handle was not one of the driver's (`CUDA_ERROR_INVALID_HANDLE`).
    #[error("invalid handle")]
    InvalidHandle,
    /// The call is illegal while a stream is being captured
    /// (`CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`).
    #[error("not permitted while a stream is being captured")]
    CaptureUnsupported,
    /// The event was recorded in a capture and cannot be asked outside it
    /// (`CUDA_ERROR_CAPTURED_EVENT`).
    #[error("event belongs to a capture")]
    CapturedEvent,
    /// The driver is shutting down (`CUDA_ERROR_DEINITIALIZED`): the process is exiting.
    #[error("driver is shutting down")]
    Deinitialized,
    /// The process is a forked child of one that used the device (`CUDA_ERROR_NOT_INITIALIZED`).
    #[error("driver is not initialised in this process")]
    NotInitialized,
    /// A kernel faulted earlier; the context is lost (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    #[error("an earlier kernel failed and the context is lost")]
    ContextLost,
    /// Somebody in the process has reset the device (`cudaDeviceReset`): every address and handle
    /// from before is gone, and no driver is asked about any.
    #[error("the device was reset, and all its memory is gone: restart the process")]
    DeviceReset,
    /// The stream is of a context that the program made (`cuCtxCreate`), which no wait for the
    /// device covers. It may use memory, and gets none.
    #[error(
        "the stream is of a context of the program's own, and memory is for streams of the \
         device's primary one"
    )]
    OtherContext,
    /// A stream was at work for longer than it is waited for (`CUDA_ERROR_NOT_READY`).
    #[error("a stream is at work")]
    NotReady,
    /// The device does not offer this call (`CUDA_ERROR_NOT_SUPPORTED`).
    #[error("not supported by this device")]
    NotSupported,
    /// Memory was to be taken or given back, or a capture to begin, from within code that is called
    /// while memory moves: a callback on mapping changes, or a memory provider. No driver was
    /// asked.
    #[error("not permitted from within a callback on mapping changes, or a memory provider")]
    InCallback,
    /// The library has no handle for the memory, which is a bug of its own; no driver was asked.
    #[error("the allocator has lost track of a handle, which is a bug of its own")]
    NoHandle,
    /// An invariant of the library broke earlier, which is a bug of its own; no driver was asked.
    #[error(
        "an earlier defect of the library broke the allocator: report the defect, and restart the \
         process"
    )]
    Poisoned,
    /// Any other code, by its number in the driver's API.
    #[error("driver error {0}")]
    Other(i32),
}

impl ErrorCode {
    /// Whether no driver call can succeed any more, or none is made.
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            ErrorCode::Deinitialized
                | ErrorCode::NotInitialized
                | ErrorCode::ContextLost
                | ErrorCode::DeviceReset
                | ErrorCode::Poisoned
        )
    }
}

/// A failed driver call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} failed: {code}{}", call.cuda_name(), Details(self))]
#[non_exhaustive]
pub struct DriverError {
    /// The call that failed.
    pub call: Call,
    /// Why.
    pub code: ErrorCode,
    /// The size it was asked for, in bytes; 0 where the call has none.
    pub bytes: u64,
    /// The address it was asked for; 0 where the call has none.
    pub address: u64,
    /// The driver's own name for the code, such as `CUDA_ERROR_LAUNCH_FAILED`: several names share
    /// one [`ErrorCode`]. Empty where no CUDA driver was asked.
    pub cuda_error: &'static str,
}

impl DriverError {
    /// An error of a call that has neither size nor address.
    pub const fn new(call: Call, code: ErrorCode) -> Self {
        Self { call, code, bytes: 0, address: 0, cuda_error: "" }
    }

    /// The same error with the figures of the call.
    #[must_use]
    pub const fn with_figures(mut self, bytes: u64, address: u64) -> Self {
        self.bytes = bytes;
        self.address = address;
        self
    }

    /// The same error with the driver's own name for it.
    #[must_use]
    pub const fn with_cuda_error(mut self, name: &'static str) -> Self {
        self.cuda_error = name;
        self
    }

    /// Whether giving memory back and trying again may help.
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self.code, ErrorCode::OutOfMemory)
    }
}

/// What the driver calls the error, and size and address of the call; each left out where there is
/// none.
struct Details<'a>(&'a DriverError);

impl std::fmt::Display for Details<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let DriverError { bytes, address, cuda_error, .. } = *self.0;
        let is_named = !cuda_error.is_empty();
        if !is_named && bytes == 0 && address == 0 {
            return Ok(());
        }
        write!(f, " ({cuda_error}")?;
        if is_named && (bytes != 0 || address != 0) {
            f.write_str(", ")?;
        }
        match (bytes, address) {
            (0, 0) => {}
            (bytes, 0) => write!(f, "{bytes} bytes")?,
            (0, address) => write!(f, "address {address:#x}")?,
            (bytes, address) => write!(f, "{bytes} bytes at {address:#x}")?,
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::{DriverError, ErrorCode};
    use crate::Call;

    #[test]
    fn message_names_call_reason_and_figures() {
        let error = DriverError::new(Call::Create, ErrorCode::OutOfMemory).with_figures(2 << 20, 0);
        assert_eq!(error.to_string(), "cuMemCreate failed: out of memory (2097152 bytes)");
        let error =
            DriverError::new(Call::Unmap, ErrorCode::InvalidValue).with_figures(512, 0x1000);
        assert_eq!(error.to_string(), "cuMemUnmap failed: invalid value (512 bytes at 0x1000)");
        let error = DriverError::new(Call::Query, ErrorCode::CapturedEvent);
        assert_eq!(error.to_string(), "cudaEventQuery failed: event belongs to a capture");
    }

    #[test]
    fn message_names_the_error_as_the_driver_does() {
        let error = DriverError::new(Call::Create, ErrorCode::OutOfMemory)
            .with_cuda_error("CUDA_ERROR_OUT_OF_MEMORY");
        let shown = "cuMemCreate failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY";
        assert_eq!(error.to_string(), format!("{shown})"));
        let error = error.with_figures(2 << 20, 0);
        assert_eq!(error.to_string(), format!("{shown}, 2097152 bytes)"));
        let error = error.with_figures(0, 0x1000);
        assert_eq!(error.to_string(), format!("{shown}, address 0x1000)"));
    }
}
