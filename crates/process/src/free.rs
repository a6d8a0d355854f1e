//! Taking blocks back: what the program says of them is checked, and a refusal changes nothing
//! (P3).
//!
//! The stream that is passed to a free never decides anything: a block goes back to its own (B64).

use std::ffi::c_int;

use drystone::FreeError;
use drystone::driver::Stream;

use crate::device::Device;
use crate::registry;
use crate::status::{Failure, Status};

/// Frees a block of a device by its address and size.
///
/// # Errors
/// There is no such live block; what is wrong is said.
#[inline]
pub fn sized(address: u64, bytes: u64, ordinal: c_int) -> Result<(), Failure> {
    let freed = match registry::find(ordinal) {
        Some(device) => device.allocator.free_sized(address, bytes),
        None => Err(FreeError::Unknown { address }),
    };
    freed.map_err(|error| explain(error, ordinal))
}

/// Frees a block of any device.
///
/// # Errors
/// There is no such live block.
#[inline]
pub fn anywhere(address: u64) -> Result<(), Failure> {
    let unknown = FreeError::Unknown { address };
    let mut refusal = unknown;
    for device in registry::in_use() {
        match device.allocator.free(address) {
            Err(error) if error == unknown => {}
            // It may be a block of another device.
            Err(FreeError::Poisoned) => refusal = FreeError::Poisoned,
            freed => return Ok(freed?),
        }
    }
    Err(refusal.into())
}

/// Frees a block if everything the program says of it is so.
///
/// # Errors
/// What is not so.
pub fn checked(address: u64, bytes: u64, ordinal: c_int, stream: u64) -> Result<(), Failure> {
    let device = registry::find(ordinal);
    let device = device.ok_or_else(|| explain(FreeError::Unknown { address }, ordinal))?;
    let block = device.allocator.block_at(address).map_err(|error| explain(error, ordinal))?;
    if bytes == block.requested_bytes && !device.is_stream_of(block.stream, stream) {
        let message = format!(
            "the block at {address:#x} was allocated on stream {:#x}, not {stream:#x}",
            device.handle_at(block.stream)
        );
        return Err(Failure::new(Status::WrongStream, message));
    }
    sized(address, bytes, ordinal)
}

/// The device that an address belongs to.
///
/// # Errors
/// It is no block's of any device in use.
pub fn owner(address: u64) -> Result<&'static Device, Failure> {
    let mut devices = registry::in_use();
    let unknown = FreeError::Unknown { address };
    let owns = |device: &&Device| device.allocator.block_at(address) != Err(unknown);
    devices.find(owns).ok_or_else(|| unknown.into())
}

/// Why a free was refused, with a look at the other devices.
#[cold]
fn explain(error: FreeError, ordinal: c_int) -> Failure {
    match error {
        FreeError::Unknown { address } => match owner(address) {
            Ok(device) => {
                let message =
                    format!("{address:#x} belongs to device {}, not {ordinal}", device.ordinal);
                Failure::new(Status::WrongDevice, message)
            }
            Err(failure) => failure,
        },
        FreeError::WrongSize { address, given_bytes, requested_bytes } => {
            let message = format!(
                "the block at {address:#x} was allocated with {requested_bytes} bytes, not {}",
                given_bytes.cast_signed()
            );
            Failure::new(Status::WrongSize, message)
        }
        error => error.into(),
    }
}

impl Device {
    /// The handle of the stream at a position, as the program named it last.
    pub fn handle_at(&self, stream: usize) -> u64 {
        self.allocator.stream_handle(stream).map_or(0, |stream| stream.0)
    }

    /// Whether a handle was that of the stream at a position. The driver is not asked: the stream
    /// may be gone.
    fn is_stream_of(&self, stream: usize, handle: u64) -> bool {
        let own = self.handle_at(stream);
        own == handle || (Stream(own).is_default() && Stream(handle).is_default())
    }
}
