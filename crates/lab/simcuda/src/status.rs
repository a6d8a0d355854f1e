//! [`Status`]: CUDA's result codes, their names and texts, and what the simulated device's errors
//! are among them.

use drystone_driver::{DriverError, ErrorCode};

/// A `CUresult`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) i32);

/// What a function of the API comes to.
pub(crate) type Outcome<T = ()> = Result<T, Status>;

impl Status {
    /// Ends a call with this where something is wrong.
    pub(crate) fn when(self, is_wrong: bool) -> Outcome {
        if is_wrong { Err(self) } else { Ok(()) }
    }
}

macro_rules! statuses {
    ($($constant:ident = $number:literal $text:literal)*) => {
        $(#[allow(dead_code, reason = "the table is whole")]
        pub(crate) const $constant: Status = Status($number);)*

        const TABLE: &[(i32, &str, &str)] = &[
            (0, "CUDA_SUCCESS\0", "no error\0"),
            $((
                $number,
                concat!("CUDA_ERROR_", stringify!($constant), "\0"),
                concat!($text, "\0"),
            ),)*
        ];
    };
}

statuses! {
    INVALID_VALUE = 1 "invalid argument"
    OUT_OF_MEMORY = 2 "out of memory"
    NOT_INITIALIZED = 3 "initialization error"
    DEINITIALIZED = 4 "driver shutting down"
    PROFILER_DISABLED = 5 "profiler disabled while using external profiling tool"
    STUB_LIBRARY = 34 "CUDA driver is a stub library"
    NO_DEVICE = 100 "no CUDA-capable device is detected"
    INVALID_DEVICE = 101 "invalid device ordinal"
    INVALID_IMAGE = 200 "device kernel image is invalid"
    INVALID_CONTEXT = 201 "invalid device context"
    MAP_FAILED = 205 "mapping of buffer object failed"
    UNMAP_FAILED = 206 "unmapping of buffer object failed"
    ALREADY_MAPPED = 208 "resource already mapped"
    NO_BINARY_FOR_GPU = 209 "no kernel image is available for execution on the device"
    NOT_MAPPED = 211 "resource not mapped"
    UNSUPPORTED_LIMIT = 215 "limit is not supported on this architecture"
    CONTEXT_ALREADY_IN_USE = 216 "exclusive-thread device already in use by a different thread"
    PEER_ACCESS_UNSUPPORTED = 217 "peer access is not supported between these two devices"
    INVALID_PTX = 218 "a PTX JIT compilation failed"
    INVALID_SOURCE = 300 "device kernel image is invalid"
    FILE_NOT_FOUND = 301 "file not found"
    OPERATING_SYSTEM = 304 "OS call failed or operation not supported on this OS"
    INVALID_HANDLE = 400 "invalid resource handle"
    ILLEGAL_STATE = 401 "the operation cannot be performed in the present state"
    NOT_FOUND = 500 "named symbol not found"
    NOT_READY = 600 "device not ready"
    ILLEGAL_ADDRESS = 700 "an illegal memory access was encountered"
    LAUNCH_OUT_OF_RESOURCES = 701 "too many resources requested for launch"
    LAUNCH_TIMEOUT = 702 "the launch timed out and was terminated"
    PEER_ACCESS_ALREADY_ENABLED = 704 "peer access is already enabled"
    PEER_ACCESS_NOT_ENABLED = 705 "peer access has not been enabled"
    PRIMARY_CONTEXT_ACTIVE = 708 "cannot set while device is active in this process"
    CONTEXT_IS_DESTROYED = 709 "context is destroyed"
    ASSERT = 710 "device-side assert triggered"
    HOST_MEMORY_ALREADY_REGISTERED = 712
        "part or all of the requested memory range is already mapped"
    HOST_MEMORY_NOT_REGISTERED = 713 "pointer does not correspond to a registered memory region"
    LAUNCH_FAILED = 719 "unspecified launch failure"
    NOT_PERMITTED = 800 "operation not permitted"
    NOT_SUPPORTED = 801 "operation not supported"
    SYSTEM_NOT_READY = 802 "system not yet initialized"
    STREAM_CAPTURE_UNSUPPORTED = 900 "operation not permitted when stream is capturing"
    STREAM_CAPTURE_INVALIDATED = 901 "operation failed due to a previous error during capture"
    STREAM_CAPTURE_MERGE = 902 "operation would result in a merge of separate capture sequences"
    STREAM_CAPTURE_UNMATCHED = 903 "capture was not ended in the same stream as it began"
    STREAM_CAPTURE_UNJOINED = 904 "capturing stream has unjoined work"
    STREAM_CAPTURE_ISOLATION = 905 "dependency created on uncaptured work in another stream"
    STREAM_CAPTURE_IMPLICIT = 906
        "operation would make the legacy stream depend on a capturing blocking stream"
    CAPTURED_EVENT = 907 "operation not permitted on an event last recorded in a capturing stream"
    STREAM_CAPTURE_WRONG_THREAD = 908
        "attempt to terminate a thread-local capture sequence from another thread"
    TIMEOUT = 909 "wait operation timed out"
    GRAPH_EXEC_UPDATE_FAILURE = 910
        "the graph update was not performed because it included changes which violated \
         constraints specific to instantiated graph update"
    UNKNOWN = 999 "unknown error"
}

impl Status {
    /// CUDA's name of the code and its text, both with a NUL.
    pub(crate) fn describe(self) -> Option<(&'static str, &'static str)> {
        let row = TABLE.iter().find(|row| row.0 == self.0)?;
        Some((row.1, row.2))
    }

    /// The code as the simulated device knows it.
    pub(crate) fn as_error_code(self) -> ErrorCode {
        let known = CODES.into_iter().find(|code| code.0 == self);
        known.map_or(ErrorCode::Other(self.0), |code| code.1)
    }
}

/// Codes that the simulated device knows by name.
const CODES: [(Status, ErrorCode); 9] = [
    (INVALID_VALUE, ErrorCode::InvalidValue),
    (OUT_OF_MEMORY, ErrorCode::OutOfMemory),
    (NOT_INITIALIZED, ErrorCode::NotInitialized),
    (DEINITIALIZED, ErrorCode::Deinitialized),
    (INVALID_HANDLE, ErrorCode::InvalidHandle),
    (ILLEGAL_ADDRESS, ErrorCode::ContextLost),
    (NOT_SUPPORTED, ErrorCode::NotSupported),
    (STREAM_CAPTURE_UNSUPPORTED, ErrorCode::CaptureUnsupported),
    (CAPTURED_EVENT, ErrorCode::CapturedEvent),
];

impl From<ErrorCode> for Status {
    fn from(code: ErrorCode) -> Self {
        if let ErrorCode::Other(number) = code {
            return Status(number);
        }
        CODES.into_iter().find(|known| known.1 == code).map_or(UNKNOWN, |known| known.0)
    }
}

impl From<DriverError> for Status {
    fn from(error: DriverError) -> Self {
        error.code.into()
    }
}
