//! Whose a stream is, of PyTorch or of the program: asked of the PyTorch that is loaded.
//!
//! A plug-in is given handles alone. But the stream that a request comes on is PyTorch's current
//! one, whose id tells: those of its own streams are odd, and these are never destroyed. That of
//! another is its handle, and the default stream's is 0 (PyTorch's `c10/cuda/CUDAStream.cpp`, note
//! on the assignment of ids; the same from 2.6 to 2.15).
//!
//! Keeps: nothing is asked on the way of a hit.

use std::ffi::{CStr, c_void};
use std::mem;
use std::sync::OnceLock;

use drystone::StreamEnd;
use drystone_process::streams;

/// `c10::cuda::CUDAStream`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TorchStream {
    device_type: i8,
    device: i8,
    id: i64,
}

type CurrentStream = unsafe extern "C-unwind" fn(device: i8) -> TorchStream;
type HandleOf = unsafe extern "C-unwind" fn(*const TorchStream) -> u64;

#[derive(Clone, Copy)]
struct Functions {
    current_stream: CurrentStream,
    handle_of: HandleOf,
}

/// Found once this library is a plug-in of PyTorch's. Its compiled route says itself which streams
/// stay, and who calls the library beside PyTorch has streams of its own.
static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// From now on PyTorch, which this is the handle of, is asked.
pub(crate) fn ask(library: *mut c_void) {
    if let Some(functions) = look_up(library) {
        let _ = FUNCTIONS.set(functions);
        streams::ask(end_of);
    }
}

/// Whether the end of a stream of a device will be told, which a call brings: PyTorch's own live as
/// long as the process. Unknown where it is not the current one, of
/// which alone PyTorch tells.
fn end_of(device: u32, handle: u64) -> StreamEnd {
    let Some(functions) = FUNCTIONS.get() else { return StreamEnd::Untold };
    // SAFETY: PyTorch's own function; a device that is in use is one of PyTorch's. There are fewer
    // than 128.
    let current = unsafe { (functions.current_stream)(device as i8) };
    // SAFETY: PyTorch's own function, and a stream that it gave.
    let current_handle = unsafe { (functions.handle_of)(&raw const current) };
    match current.id {
        _ if current_handle != handle => StreamEnd::Unknown,
        id if id % 2 != 0 => StreamEnd::Told,
        _ => StreamEnd::Untold,
    }
}

fn look_up(library: *mut c_void) -> Option<Functions> {
    let find = |name: &CStr| {
        // SAFETY: the library is loaded, the name a C string.
        let address = unsafe { libc::dlsym(library, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    };
    let current_stream = find(c"_ZN3c104cuda20getCurrentCUDAStreamEa")?;
    let handle_of = find(c"_ZNK3c104cuda10CUDAStream6streamEv")?;
    Some(Functions {
        // SAFETY: the function of that name takes a device's index. Its class is two bytes and an
        // id, and trivial: it is returned as such a struct is.
        current_stream: unsafe { mem::transmute::<*mut c_void, CurrentStream>(current_stream) },
        // SAFETY: the method of that name, of an object that is passed by address.
        handle_of: unsafe { mem::transmute::<*mut c_void, HandleOf>(handle_of) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_this_is_no_plug_in_nobody_is_asked() {
        assert_eq!(end_of(0, 0x10), StreamEnd::Untold);
    }
}
