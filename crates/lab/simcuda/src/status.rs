//! [`Status`]: CUDA's result codes, their names and texts, and what the simulated device's errors
//! are among them.

use drystone_driver::{DriverError, ErrorCode};

/// A `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) i32);

/// What a function of the API comes to.
pub(crate) type Outcome<T = ()> = Result<T, Status>;

macro_rules! statuses {
    ($($constant:ident = $number:literal $name:literal $text:literal)*) => {
        $(#[allow(dead_code, reason = "the table is whole")]
        pub(crate) const $constant: Status = Status($number);)*

        const TABLE: &[(i32, &str, &str)] = &[
            (0, "CUDA_SUCCESS\0", "no error\0"),
            $(($number, concat!($name, "\0"), concat!($text, "\0")),)*
        ];
    };
}

statuses! {
    INVALID_VALUE = 1 "CUDA_ERROR_INVALID_VALUE" "invalid argument"
    OUT_OF_MEMORY = 2 "CUDA_ERROR_OUT_OF_MEMORY" "out of memory"
    NOT_INITIALIZED = 3 "CUDA_ERROR_NOT_INITIALIZED" "initialization error"
    DEINITIALIZED = 4 "CUDA_ERROR_DEINITIALIZED" "driver shutting down"
    PROFILER_DISABLED = 5 "CUDA_ERROR_PROFILER_DISABLED"
        "profiler disabled while using external profiling tool"
    STUB_LIBRARY = 34 "CUDA_ERROR_STUB_LIBRARY" "CUDA driver is a stub library"
    NO_DEVICE = 100 "CUDA_ERROR_NO_DEVICE" "no CUDA-capable device is detected"
    INVALID_DEVICE = 101 "CUDA_ERROR_INVALID_DEVICE" "invalid device ordinal"
    INVALID_IMAGE = 200 "CUDA_ERROR_INVALID_IMAGE" "device kernel image is invalid"
    INVALID_CONTEXT = 201 "CUDA_ERROR_INVALID_CONTEXT" "invalid device context"
    MAP_FAILED = 205 "CUDA_ERROR_MAP_FAILED" "mapping of buffer object failed"
    UNMAP_FAILED = 206 "CUDA_ERROR_UNMAP_FAILED" "unmapping of buffer object failed"
    ALREADY_MAPPED = 208 "CUDA_ERROR_ALREADY_MAPPED" "resource already mapped"
    NO_BINARY_FOR_GPU = 209 "CUDA_ERROR_NO_BINARY_FOR_GPU"
        "no kernel image is available for execution on the device"
    NOT_MAPPED = 211 "CUDA_ERROR_NOT_MAPPED" "resource not mapped"
    UNSUPPORTED_LIMIT = 215 "CUDA_ERROR_UNSUPPORTED_LIMIT"
        "limit is not supported on this architecture"
    CONTEXT_ALREADY_IN_USE = 216 "CUDA_ERROR_CONTEXT_ALREADY_IN_USE"
        "exclusive-thread device already in use by a different thread"
    PEER_ACCESS_UNSUPPORTED = 217 "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
        "peer access is not supported between these two devices"
    INVALID_PTX = 218 "CUDA_ERROR_INVALID_PTX" "a PTX JIT compilation failed"
    INVALID_SOURCE = 300 "CUDA_ERROR_INVALID_SOURCE" "device kernel image is invalid"
    FILE_NOT_FOUND = 301 "CUDA_ERROR_FILE_NOT_FOUND" "file not found"
    OPERATING_SYSTEM = 304 "CUDA_ERROR_OPERATING_SYSTEM"
        "OS call failed or operation not supported on this OS"
    INVALID_HANDLE = 400 "CUDA_ERROR_INVALID_HANDLE" "invalid resource handle"
    ILLEGAL_STATE = 401 "CUDA_ERROR_ILLEGAL_STATE"
        "the operation cannot be performed in the present state"
    NOT_FOUND = 500 "CUDA_ERROR_NOT_FOUND" "named symbol not found"
    NOT_READY = 600 "CUDA_ERROR_NOT_READY" "device not ready"
    ILLEGAL_ADDRESS = 700 "CUDA_ERROR_ILLEGAL_ADDRESS" "an illegal memory access was encountered"
    LAUNCH_OUT_OF_RESOURCES = 701 "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
        "too many resources requested for launch"
    LAUNCH_TIMEOUT = 702 "CUDA_ERROR_LAUNCH_TIMEOUT" "the launch timed out and was terminated"
    PEER_ACCESS_ALREADY_ENABLED = 704 "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"
        "peer access is already enabled"
    PEER_ACCESS_NOT_ENABLED = 705 "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"
        "peer access has not been enabled"
    PRIMARY_CONTEXT_ACTIVE = 708 "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"
        "cannot set while device is active in this process"
    CONTEXT_IS_DESTROYED = 709 "CUDA_ERROR_CONTEXT_IS_DESTROYED" "context is destroyed"
    ASSERT = 710 "CUDA_ERROR_ASSERT" "device-side assert triggered"
    HOST_MEMORY_ALREADY_REGISTERED = 712 "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
        "part or all of the requested memory range is already mapped"
    HOST_MEMORY_NOT_REGISTERED = 713 "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"
        "pointer does not correspond to a registered memory region"
    LAUNCH_FAILED = 719 "CUDA_ERROR_LAUNCH_FAILED" "unspecified launch failure"
    NOT_PERMITTED = 800 "CUDA_ERROR_NOT_PERMITTED" "operation not permitted"
    NOT_SUPPORTED = 801 "CUDA_ERROR_NOT_SUPPORTED" "operation not supported"
    SYSTEM_NOT_READY = 802 "CUDA_ERROR_SYSTEM_NOT_READY" "system not yet initialized"
    CAPTURE_UNSUPPORTED = 900 "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        "operation not permitted when stream is capturing"
    CAPTURE_INVALIDATED = 901 "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
        "operation failed due to a previous error during capture"
    CAPTURE_MERGE = 902 "CUDA_ERROR_STREAM_CAPTURE_MERGE"
        "operation would result in a merge of separate capture sequences"
    CAPTURE_UNMATCHED = 903 "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"
        "capture was not ended in the same stream as it began"
    CAPTURE_UNJOINED = 904 "CUDA_ERROR_STREAM_CAPTURE_UNJOINED" "capturing stream has unjoined work"
    CAPTURE_ISOLATION = 905 "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"
        "dependency created on uncaptured work in another stream"
    CAPTURE_IMPLICIT = 906 "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
        "operation would make the legacy stream depend on a capturing blocking stream"
    CAPTURED_EVENT = 907 "CUDA_ERROR_CAPTURED_EVENT"
        "operation not permitted on an event last recorded in a capturing stream"
    CAPTURE_WRONG_THREAD = 908 "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"
        "attempt to terminate a thread-local capture sequence from another thread"
    TIMEOUT = 909 "CUDA_ERROR_TIMEOUT" "wait operation timed out"
    GRAPH_EXEC_UPDATE_FAILURE = 910 "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"
        "the graph update was not performed because it included changes which violated \
         constraints specific to instantiated graph update"
    UNKNOWN = 999 "CUDA_ERROR_UNKNOWN" "unknown error"
}

impl Status {
    /// CUDA's name of the code and its text, both with a NUL.
    pub(crate) fn describe(self) -> Option<(&'static str, &'static str)> {
        let row = TABLE.iter().find(|row| row.0 == self.0)?;
        Some((row.1, row.2))
    }

    /// The code as the simulated device knows it.
    pub(crate) const fn as_error_code(self) -> ErrorCode {
        match self {
            INVALID_VALUE => ErrorCode::InvalidValue,
            OUT_OF_MEMORY => ErrorCode::OutOfMemory,
            NOT_INITIALIZED => ErrorCode::NotInitialized,
            DEINITIALIZED => ErrorCode::Deinitialized,
            INVALID_HANDLE => ErrorCode::InvalidHandle,
            ILLEGAL_ADDRESS => ErrorCode::ContextLost,
            NOT_SUPPORTED => ErrorCode::NotSupported,
            CAPTURE_UNSUPPORTED => ErrorCode::CaptureUnsupported,
            CAPTURED_EVENT => ErrorCode::CapturedEvent,
            Status(number) => ErrorCode::Other(number),
        }
    }
}

impl From<ErrorCode> for Status {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::OutOfMemory => OUT_OF_MEMORY,
            ErrorCode::InvalidValue => INVALID_VALUE,
            ErrorCode::InvalidHandle => INVALID_HANDLE,
            ErrorCode::CaptureUnsupported => CAPTURE_UNSUPPORTED,
            ErrorCode::CapturedEvent => CAPTURED_EVENT,
            ErrorCode::Deinitialized => DEINITIALIZED,
            ErrorCode::NotInitialized => NOT_INITIALIZED,
            ErrorCode::ContextLost => ILLEGAL_ADDRESS,
            ErrorCode::NotSupported => NOT_SUPPORTED,
            ErrorCode::Other(number) => Status(number),
            _ => UNKNOWN,
        }
    }
}

impl From<DriverError> for Status {
    fn from(error: DriverError) -> Self {
        error.code.into()
    }
}
