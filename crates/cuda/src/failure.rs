//! [`Failure`]: a number other than 0 from the driver, and what it means to the layers above.

use drystone_driver::{Call, DriverError, ErrorCode};

/// What a call of the driver returned instead of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The `CUresult`, as a number: a newer driver may return some that the bindings do not list.
    pub(crate) number: u32,
    /// The driver's name for it; empty if it has none.
    pub(crate) name: &'static str,
}

impl Failure {
    /// Something is at work, which says nothing of the device.
    pub(crate) const BUSY: Self = Self { number: Self::NOT_READY, name: "CUDA_ERROR_NOT_READY" };

    /// Only work that is not complete yet: no failure at all.
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const STUB_LIBRARY: u32 = 34;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
    /// The legacy default stream is asked while a stream that synchronises with it is captured.
    pub(crate) const STREAM_CAPTURE_IMPLICIT: u32 = 906;
    /// No context is current, or one that is gone.
    pub(crate) const WITHOUT_CONTEXT: [u32; 2] = [201, 709];

    pub(crate) const fn code(self) -> ErrorCode {
        match self.number {
            // INVALID_VALUE, INVALID_DEVICE
            1 | 101 => ErrorCode::InvalidValue,
            2 => ErrorCode::OutOfMemory,
            3 => ErrorCode::NotInitialized,
            4 => ErrorCode::Deinitialized,
            // No such handle; or its context is gone, and the handle with it: INVALID_CONTEXT and
            // CONTEXT_IS_DESTROYED, which drivers also return for a stream that was destroyed.
            201 | 400 | 709 => ErrorCode::InvalidHandle,
            // ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, ASSERT,
            // HARDWARE_STACK_ERROR, ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, INVALID_ADDRESS_SPACE,
            // INVALID_PC, LAUNCH_FAILED, CONTAINED: each leaves the process without its context.
            214 | 220 | 700 | 702 | 710 | 714..=719 | 721 => ErrorCode::ContextLost,
            600 => ErrorCode::NotReady,
            // PEER_ACCESS_UNSUPPORTED, NOT_SUPPORTED
            217 | 801 => ErrorCode::NotSupported,
            // STREAM_CAPTURE_UNSUPPORTED, _INVALIDATED, _UNMATCHED, _UNJOINED, _IMPLICIT,
            // _WRONG_THREAD
            900 | 901 | 903 | 904 | 906 | 908 => ErrorCode::CaptureUnsupported,
            // STREAM_CAPTURE_MERGE, STREAM_CAPTURE_ISOLATION, CAPTURED_EVENT: the event belongs to
            // a capture that the stream is not part of.
            902 | 905 | 907 => ErrorCode::CapturedEvent,
            // The driver's numbers are below 1000.
            number => ErrorCode::Other(number.cast_signed()),
        }
    }

    /// As an error of the driver trait.
    pub(crate) const fn of(self, call: Call) -> DriverError {
        DriverError::new(call, self.code()).with_cuda_error(self.name)
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::CUresult as C;
    use drystone_driver::{Call, ErrorCode};

    use super::Failure;

    fn code(result: C) -> ErrorCode {
        Failure { number: result as u32, name: "" }.code()
    }

    #[test]
    fn numbers_are_those_of_the_bindings() {
        assert_eq!(Failure::NOT_READY, C::CUDA_ERROR_NOT_READY as u32);
        assert_eq!(Failure::STUB_LIBRARY, C::CUDA_ERROR_STUB_LIBRARY as u32);
        assert_eq!(Failure::NO_DEVICE, C::CUDA_ERROR_NO_DEVICE as u32);
        let enabled = C::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32;
        assert_eq!(Failure::PEER_ACCESS_ALREADY_ENABLED, enabled);
        let implicit = C::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT as u32;
        assert_eq!(Failure::STREAM_CAPTURE_IMPLICIT, implicit);
        let gone = [C::CUDA_ERROR_INVALID_CONTEXT, C::CUDA_ERROR_CONTEXT_IS_DESTROYED];
        assert_eq!(Failure::WITHOUT_CONTEXT, gone.map(|result| result as u32));
    }

    #[test]
    fn every_error_that_the_layers_above_tell_apart_has_its_code() {
        assert_eq!(code(C::CUDA_ERROR_INVALID_VALUE), ErrorCode::InvalidValue);
        assert_eq!(code(C::CUDA_ERROR_INVALID_DEVICE), ErrorCode::InvalidValue);
        assert_eq!(code(C::CUDA_ERROR_OUT_OF_MEMORY), ErrorCode::OutOfMemory);
        assert_eq!(code(C::CUDA_ERROR_NOT_INITIALIZED), ErrorCode::NotInitialized);
        assert_eq!(code(C::CUDA_ERROR_DEINITIALIZED), ErrorCode::Deinitialized);
        for handle in [
            C::CUDA_ERROR_INVALID_HANDLE,
            C::CUDA_ERROR_INVALID_CONTEXT,
            C::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        ] {
            assert_eq!(code(handle), ErrorCode::InvalidHandle, "{handle:?}");
        }
        for lost in [
            C::CUDA_ERROR_ECC_UNCORRECTABLE,
            C::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            C::CUDA_ERROR_ILLEGAL_ADDRESS,
            C::CUDA_ERROR_LAUNCH_TIMEOUT,
            C::CUDA_ERROR_ASSERT,
            C::CUDA_ERROR_HARDWARE_STACK_ERROR,
            C::CUDA_ERROR_ILLEGAL_INSTRUCTION,
            C::CUDA_ERROR_MISALIGNED_ADDRESS,
            C::CUDA_ERROR_INVALID_ADDRESS_SPACE,
            C::CUDA_ERROR_INVALID_PC,
            C::CUDA_ERROR_LAUNCH_FAILED,
        ] {
            assert_eq!(code(lost), ErrorCode::ContextLost, "{lost:?}");
        }
        for missing in [C::CUDA_ERROR_NOT_SUPPORTED, C::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED] {
            assert_eq!(code(missing), ErrorCode::NotSupported, "{missing:?}");
        }
    }

    #[test]
    fn errors_of_captures_are_told_apart_by_what_is_at_fault() {
        for call in [
            C::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            C::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
            C::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
            C::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
            C::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
            C::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        ] {
            assert_eq!(code(call), ErrorCode::CaptureUnsupported, "{call:?}");
        }
        for event in [
            C::CUDA_ERROR_CAPTURED_EVENT,
            C::CUDA_ERROR_STREAM_CAPTURE_MERGE,
            C::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        ] {
            assert_eq!(code(event), ErrorCode::CapturedEvent, "{event:?}");
        }
    }

    #[test]
    fn any_other_error_keeps_its_number_and_its_name() {
        assert_eq!(code(C::CUDA_ERROR_TOO_MANY_PEERS), ErrorCode::Other(711));
        let unknown = Failure { number: 999, name: "CUDA_ERROR_UNKNOWN" }.of(Call::Map);
        let shown = "cuMemMap failed: driver error 999 (CUDA_ERROR_UNKNOWN)";
        assert_eq!(unknown.to_string(), shown);
    }
}
