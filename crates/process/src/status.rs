//! [`Status`]: how a call ended, as C sees it; [`Failure`]: the same with a message.
//!
//! Every error of the layers below has exactly one status, given here. The header of the C
//! interface is made of these comments, too.

use drystone::driver::{DriverError, ErrorCode};
use drystone::{
    AllocateError, BuildError, FreeError, OptionsError, OutOfMemory, PeerError, PinError,
    RecordStreamError, RequestError, ReserveError, ShareError, StreamError, TrimError,
};
use drystone_cuda::OpenError;

/// How a call ended. Values are never renumbered; later versions may add some.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// An argument is none the function takes: a null pointer, a number out of range.
    InvalidValue = 1,
    /// The size is larger than any block can be.
    InvalidSize = 2,
    /// There is no such device.
    InvalidDevice = 3,
    /// Not enough memory, after everything unused was given back. The same call may succeed later.
    OutOfMemory = 4,
    /// The pointer is not one of this library's.
    UnknownPointer = 5,
    /// The pointer lies inside a block that starts elsewhere.
    InteriorPointer = 6,
    /// The block was freed already.
    AlreadyFree = 7,
    /// The block was allocated with another size.
    WrongSize = 8,
    /// The block belongs to another device.
    WrongDevice = 9,
    /// The block was allocated on another stream.
    WrongStream = 10,
    /// The driver does not know the stream.
    UnknownStream = 11,
    /// The pool was never made, or is released.
    UnknownPool = 12,
    /// The text is not a list of options, or the device cannot do what they ask.
    BadOption = 13,
    /// The device is in use already, and its options are settled.
    AlreadyInUse = 14,
    /// There is no CUDA driver that can be used.
    NoDriver = 15,
    /// A driver call failed for another reason than a lack of memory.
    DriverError = 16,
    /// Not possible while a stream is being captured into a graph.
    Capturing = 17,
    /// The process is exiting.
    Exiting = 18,
    /// The process was forked from one that uses the library, and cannot use it.
    Forked = 19,
    /// The device does not offer this.
    NotSupported = 20,
    /// A file could not be written.
    FileError = 21,
    /// The buffer is too small for the text.
    BufferTooSmall = 22,
    /// A defect of the library. It was contained; please report it.
    Internal = 23,
    /// A defect broke the device's heap earlier, which was INTERNAL then. It gives and takes no
    /// memory any more, but can be looked at: please report the defect, and restart the process.
    Poisoned = 24,
    /// The device was reset, and all its memory is gone. Nothing can be had from it any more:
    /// restart the process, or free what is left and go on with another device.
    DeviceReset = 25,
}

impl Status {
    /// All there are, each at its number.
    const ALL: [Status; 26] = [
        Status::Ok,
        Status::InvalidValue,
        Status::InvalidSize,
        Status::InvalidDevice,
        Status::OutOfMemory,
        Status::UnknownPointer,
        Status::InteriorPointer,
        Status::AlreadyFree,
        Status::WrongSize,
        Status::WrongDevice,
        Status::WrongStream,
        Status::UnknownStream,
        Status::UnknownPool,
        Status::BadOption,
        Status::AlreadyInUse,
        Status::NoDriver,
        Status::DriverError,
        Status::Capturing,
        Status::Exiting,
        Status::Forked,
        Status::NotSupported,
        Status::FileError,
        Status::BufferTooSmall,
        Status::Internal,
        Status::Poisoned,
        Status::DeviceReset,
    ];

    /// The status of a number; `None` if it is none's.
    pub fn of(number: std::ffi::c_int) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// The constant's name in C.
    pub const fn name(self) -> &'static std::ffi::CStr {
        match self {
            Status::Ok => c"DRYSTONE_STATUS_OK",
            Status::InvalidValue => c"DRYSTONE_STATUS_INVALID_VALUE",
            Status::InvalidSize => c"DRYSTONE_STATUS_INVALID_SIZE",
            Status::InvalidDevice => c"DRYSTONE_STATUS_INVALID_DEVICE",
            Status::OutOfMemory => c"DRYSTONE_STATUS_OUT_OF_MEMORY",
            Status::UnknownPointer => c"DRYSTONE_STATUS_UNKNOWN_POINTER",
            Status::InteriorPointer => c"DRYSTONE_STATUS_INTERIOR_POINTER",
            Status::AlreadyFree => c"DRYSTONE_STATUS_ALREADY_FREE",
            Status::WrongSize => c"DRYSTONE_STATUS_WRONG_SIZE",
            Status::WrongDevice => c"DRYSTONE_STATUS_WRONG_DEVICE",
            Status::WrongStream => c"DRYSTONE_STATUS_WRONG_STREAM",
            Status::UnknownStream => c"DRYSTONE_STATUS_UNKNOWN_STREAM",
            Status::UnknownPool => c"DRYSTONE_STATUS_UNKNOWN_POOL",
            Status::BadOption => c"DRYSTONE_STATUS_BAD_OPTION",
            Status::AlreadyInUse => c"DRYSTONE_STATUS_ALREADY_IN_USE",
            Status::NoDriver => c"DRYSTONE_STATUS_NO_DRIVER",
            Status::DriverError => c"DRYSTONE_STATUS_DRIVER_ERROR",
            Status::Capturing => c"DRYSTONE_STATUS_CAPTURING",
            Status::Exiting => c"DRYSTONE_STATUS_EXITING",
            Status::Forked => c"DRYSTONE_STATUS_FORKED",
            Status::NotSupported => c"DRYSTONE_STATUS_NOT_SUPPORTED",
            Status::FileError => c"DRYSTONE_STATUS_FILE_ERROR",
            Status::BufferTooSmall => c"DRYSTONE_STATUS_BUFFER_TOO_SMALL",
            Status::Internal => c"DRYSTONE_STATUS_INTERNAL",
            Status::Poisoned => c"DRYSTONE_STATUS_POISONED",
            Status::DeviceReset => c"DRYSTONE_STATUS_DEVICE_RESET",
        }
    }
}

/// Why a call failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// How the call ended.
    pub status: Status,
    /// Why, in words.
    pub message: String,
    /// The figures of a lack of memory.
    pub shortage: Option<Box<OutOfMemory>>,
}

impl Failure {
    /// One with a message.
    #[cold]
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), shortage: None }
    }

    #[cold]
    fn of(status: Status, error: &dyn std::fmt::Display) -> Self {
        Self::new(status, error.to_string())
    }

    pub(crate) fn exiting() -> Self {
        Self::new(Status::Exiting, "the process is exiting: no memory is given out any more")
    }

    pub(crate) fn forked() -> Self {
        Self::new(
            Status::Forked,
            "this process was forked from one that uses CUDA, which cannot be used in both; start \
             it anew instead, or fork before the first use",
        )
    }
}

const fn status_of(code: ErrorCode) -> Status {
    match code {
        ErrorCode::OutOfMemory => Status::OutOfMemory,
        ErrorCode::InvalidHandle => Status::UnknownStream,
        ErrorCode::OtherContext => Status::InvalidValue,
        ErrorCode::CaptureUnsupported | ErrorCode::CapturedEvent => Status::Capturing,
        ErrorCode::Deinitialized => Status::Exiting,
        ErrorCode::NotInitialized => Status::Forked,
        ErrorCode::NotSupported | ErrorCode::InCallback => Status::NotSupported,
        ErrorCode::NoHandle => Status::Internal,
        ErrorCode::Poisoned => Status::Poisoned,
        ErrorCode::DeviceReset => Status::DeviceReset,
        _ => Status::DriverError,
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Failure::of(status_of(error.code), &error)
    }
}

impl From<AllocateError> for Failure {
    fn from(error: AllocateError) -> Self {
        let status = match &error {
            AllocateError::OutOfMemory(_) => Status::OutOfMemory,
            AllocateError::Request(RequestError::Size(_)) => Status::InvalidSize,
            AllocateError::Request(RequestError::Stream(_)) => Status::UnknownStream,
            AllocateError::Request(RequestError::UnknownPool { .. }) => Status::UnknownPool,
            AllocateError::Request(RequestError::Limit { .. }) => Status::OutOfMemory,
            AllocateError::Request(RequestError::Room { .. }) => Status::InvalidSize,
            AllocateError::Request(RequestError::Freed { .. }) => Status::AlreadyFree,
            // Waiting was not possible.
            AllocateError::Request(RequestError::StillUsed { .. }) => Status::Capturing,
            AllocateError::Request(RequestError::Poisoned) => Status::Poisoned,
            AllocateError::Driver { error, .. } => status_of(error.code),
            _ => Status::Internal,
        };
        let mut failure = Failure::of(status, &error);
        if let AllocateError::OutOfMemory(shortage) = error {
            failure.shortage = Some(shortage);
        }
        failure
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        AllocateError::from(error).into()
    }
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        let status = match error {
            StreamError::Poisoned => Status::Poisoned,
            _ => Status::UnknownStream,
        };
        Failure::of(status, &error)
    }
}

impl From<FreeError> for Failure {
    fn from(error: FreeError) -> Self {
        let status = match error {
            FreeError::Unknown { .. } => Status::UnknownPointer,
            FreeError::Interior { .. } => Status::InteriorPointer,
            FreeError::AlreadyFree { .. } => Status::AlreadyFree,
            FreeError::WrongSize { .. } => Status::WrongSize,
            FreeError::Poisoned => Status::Poisoned,
            _ => Status::Internal,
        };
        Failure::of(status, &error)
    }
}

impl From<RecordStreamError> for Failure {
    fn from(error: RecordStreamError) -> Self {
        match error {
            RecordStreamError::Block(error) => error.into(),
            RecordStreamError::Stream(error) => error.into(),
            RecordStreamError::Poisoned => FreeError::Poisoned.into(),
            error => Failure::of(Status::Internal, &error),
        }
    }
}

impl From<PinError> for Failure {
    fn from(error: PinError) -> Self {
        let status = match error {
            PinError::Block(error) => return error.into(),
            PinError::NotPinned { .. } => Status::UnknownPointer,
            PinError::DriversOwn => Status::NotSupported,
            _ => Status::Internal,
        };
        Failure::of(status, &error)
    }
}

impl From<ShareError> for Failure {
    fn from(error: ShareError) -> Self {
        let status = match &error {
            ShareError::Block(error) => return (*error).into(),
            ShareError::NotImported { .. } => Status::UnknownPointer,
            ShareError::Sizes { .. } => Status::InvalidValue,
            ShareError::Driver { error } => match error.code {
                ErrorCode::InvalidValue | ErrorCode::InvalidHandle => Status::InvalidValue,
                code => status_of(code),
            },
            _ => Status::NotSupported,
        };
        Failure::of(status, &error)
    }
}

impl From<ReserveError> for Failure {
    fn from(error: ReserveError) -> Self {
        match error {
            ReserveError::Build(error) => Failure::of(Status::NotSupported, &error),
            ReserveError::Allocate(error) => error.into(),
            error => Failure::of(Status::Internal, &error),
        }
    }
}

impl From<TrimError> for Failure {
    fn from(error: TrimError) -> Self {
        Failure::of(status_of(error.error.code), &error)
    }
}

impl From<PeerError> for Failure {
    fn from(error: PeerError) -> Self {
        let status = match error.error.code {
            // Of the peer, which is the only argument.
            ErrorCode::InvalidValue => Status::InvalidDevice,
            code => status_of(code),
        };
        Failure::of(status, &error)
    }
}

impl From<OptionsError> for Failure {
    fn from(error: OptionsError) -> Self {
        Failure::of(Status::BadOption, &error)
    }
}

impl From<BuildError> for Failure {
    fn from(error: BuildError) -> Self {
        let status = match error {
            BuildError::Poisoned(_) => Status::Poisoned,
            _ => Status::BadOption,
        };
        Failure::of(status, &error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let status = match &error {
            OpenError::NoSuchDevice { .. } => Status::InvalidDevice,
            OpenError::Forked => Status::Forked,
            OpenError::Exiting => Status::Exiting,
            OpenError::Driver { .. } => Status::DriverError,
            _ => Status::NoDriver,
        };
        Failure::of(status, &error)
    }
}
