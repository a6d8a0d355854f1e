//! What PyTorch's users read where there is no memory: what to do, who holds most, PyTorch's own
//! words and figures, and then what only the allocator knows.
//!
//! Invariant: while the program is asked who holds what, no lock is held here: it may allocate
//! and free.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;

use drystone::OutOfMemory;
use drystone::driver::sizes::{Hundredths, unit_of};

use crate::barrier::barrier;
use crate::status::Status;
use crate::{holders, last_error, registry};

/// Writes what PyTorch's users are to read of this thread's last failure, a request for `bytes`, to
/// `out`: what to do, who holds most, and figures. It ends with a NUL, cut if there is no room.
/// Returns how many bytes it takes with that; 0, and nothing is written, if the failure was no lack
/// of memory. Any thread.
///
/// # Safety
/// `out` points to `size` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_torch_shortage(
    device: c_int,
    bytes: usize,
    out: *mut c_char,
    size: usize,
) -> usize {
    barrier(0, || {
        let Some(text) = text(device, bytes as u64) else { return 0 };
        if size > 0 && !out.is_null() {
            let end = text.floor_char_boundary(size - 1);
            // SAFETY: there is room by the caller's word.
            unsafe { text.as_ptr().cast::<c_char>().copy_to(out, end) };
            // SAFETY: as above.
            unsafe { out.wrapping_add(end).write(0) };
        }
        text.len() + 1
    })
}

/// The same, if this thread's last failure was a lack of memory.
pub(crate) fn text(device: c_int, bytes: u64) -> Option<String> {
    let tried = format!("CUDA out of memory. Tried to allocate {}.", Size(bytes));
    match (last_error::status(), last_error::shortage()) {
        (Status::OutOfMemory, Some(mut shortage)) => {
            // What is kept of an error has none.
            let known = registry::find(device);
            shortage.tags = known.map(|known| known.allocator.tag_stats()).unwrap_or_default();
            let holders = holders::told(device, bytes);
            Some(format!("{tried} {}", told(&shortage, &holders)))
        }
        // Larger than any block can be, or than a pool's own memory: no figure of the device helps.
        (Status::OutOfMemory | Status::InvalidSize, _) => {
            let message = last_message();
            Some(format!("{tried} {}{message}", capacity(device, bytes)))
        }
        _ => None,
    }
}

/// PyTorch's words about a device that is in use, and what to do where it is too small.
fn capacity(ordinal: c_int, requested_bytes: u64) -> String {
    registry::find(ordinal).map_or(String::new(), |device| {
        let total_bytes = device.driver.info().total_bytes;
        let advice = match requested_bytes > total_bytes {
            true => "The request is larger than the device's memory. ",
            false => "",
        };
        format!("{advice}GPU {ordinal} has a total capacity of {}. ", Size(total_bytes))
    })
}

/// This thread's last message.
pub(crate) fn last_message() -> String {
    // SAFETY: the text stays until this thread's next failure, and is copied at once.
    unsafe { CStr::from_ptr(last_error::message()) }.to_string_lossy().into_owned()
}

fn told(of: &OutOfMemory, holders: &str) -> String {
    let holders = match holders.is_empty() {
        true => " ".to_owned(),
        false => format!("\n{holders}\n"),
    };
    let free = of.device_free_bytes.unwrap_or(0);
    let allowed = match of.limit_bytes < of.device_bytes {
        true => format!("{} allowed; ", Size(of.limit_bytes)),
        false => String::new(),
    };
    let pools = match of.private_allocated_bytes {
        0 => String::new(),
        bytes => format!("with {} allocated in private pools (e.g., CUDA Graphs), ", Size(bytes)),
    };
    format!(
        "{}{holders}GPU {} has a total capacity of {} of which {} is free. {allowed}Of \
         the allocated memory {} is allocated by PyTorch, {pools}and {} is reserved by PyTorch but \
         unallocated. {}",
        of.advice(),
        of.ordinal,
        Size(of.device_bytes),
        Size(free),
        Size(of.allocated_bytes),
        Size(of.reserved_bytes.saturating_sub(of.allocated_bytes)),
        of.figures(),
    )
}

/// Bytes as PyTorch writes them.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A whole unit still stands in the one below, and none is above GiB.
        match unit_of(self.0.saturating_sub(1).min((1 << 40) - 1)) {
            (_, 0) => write!(f, "{} bytes", self.0),
            (unit, shift) => write!(f, "{} {unit}", Hundredths { number: self.0, shift }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Failure;

    #[test]
    fn sizes_are_written_as_pytorch_writes_them() {
        let texts: Vec<String> =
            [0, 1024, 1025, 1 << 20, 3 << 19, 1 << 30, 6 << 30].map(|n| Size(n).to_string()).into();
        let as_pytorch = [
            "0 bytes",
            "1024 bytes",
            "1.00 KiB",
            "1024.00 KiB",
            "1.50 MiB",
            "1024.00 MiB",
            "6.00 GiB",
        ];
        assert_eq!(texts, as_pytorch);
    }

    #[test]
    fn only_a_lack_of_memory_has_a_text() {
        last_error::set(&Failure::new(Status::Capturing, "a capture"));
        assert_eq!(text(0, 1), None);
        // SAFETY: no room is named.
        let needed = unsafe { drystone_torch_shortage(0, 1, std::ptr::null_mut(), 0) };
        assert_eq!(needed, 0);
        last_error::set(&Failure::new(Status::InvalidSize, "too large"));
        let expected = "CUDA out of memory. Tried to allocate 6.00 GiB. too large";
        assert_eq!(text(0, 6 << 30).as_deref(), Some(expected));
        let mut room = [1_u8; 10];
        // SAFETY: there is room for ten.
        let needed =
            unsafe { drystone_torch_shortage(0, 6 << 30, room.as_mut_ptr().cast(), room.len()) };
        assert_eq!((needed, &room), (expected.len() + 1, b"CUDA out \0"));
    }
}
