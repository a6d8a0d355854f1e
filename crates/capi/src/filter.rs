//! [`filter`]: which streams' requests a pool takes, as the program's own code decides.
//!
//! PyTorch gives a `std::function<bool(cudaStream_t)>` of libstdc++ that lives only during the
//! call. It is copied as C++ would copy it, and destroyed with the filter. What it throws goes
//! through the frames here like a panic.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use drystone_process::pools::Filter;

/// libstdc++'s `std::function<bool(cudaStream_t)>`: 32 bytes.
#[repr(C)]
pub(crate) struct StdFunction {
    storage: [usize; 2],
    /// Copies or destroys the storage; null if there is no function.
    manager: Option<Manager>,
    invoker: Option<Invoker>,
}

type Manager = unsafe extern "C" fn(
    to: *mut [usize; 2],
    from: *const [usize; 2],
    operation: ManagerOperation,
) -> bool;
/// It may throw, as PyTorch's own do after an error of CUDA's.
type Invoker =
    unsafe extern "C-unwind" fn(storage: *const [usize; 2], stream: *mut *mut c_void) -> bool;

/// libstdc++'s `_Manager_operation`, a plain enum.
type ManagerOperation = i32;
const CLONE: ManagerOperation = 2;
const DESTROY: ManagerOperation = 3;

/// Has the unwinder ready for what is thrown elsewhere: the library brings one of its own, which
/// sets itself up as it looks at frames first, and ends the process if it was not.
fn set_unwinder_up() {
    type Visit = extern "C" fn(frame: *mut c_void, data: *mut c_void) -> c_int;
    unsafe extern "C" {
        fn _Unwind_Backtrace(visit: Visit, data: *mut c_void) -> c_int;
    }
    extern "C" fn stop(_frame: *mut c_void, _data: *mut c_void) -> c_int {
        const END_OF_STACK: c_int = 5;
        END_OF_STACK
    }
    // SAFETY: the C++ ABI's function of that name; what it calls looks at nothing.
    unsafe { _Unwind_Backtrace(stop, ptr::null_mut()) };
}

// SAFETY: the function is the program's, and the header says that it is called from any thread, by
// several at once.
unsafe impl Send for StdFunction {}
// SAFETY: as above.
unsafe impl Sync for StdFunction {}

/// A copy of the function; null and a function that is empty stand for all streams.
///
/// # Safety
/// The pointer is null or that of a `std::function<bool(cudaStream_t)>` of libstdc++.
pub(crate) unsafe fn filter(function: *const StdFunction) -> Filter {
    // SAFETY: null, or valid by the caller's word.
    let function = (unsafe { function.as_ref() })?;
    let (manager, invoker) = (function.manager?, function.invoker?);
    set_unwinder_up();
    // Boxed: it stays where it is.
    let mut copy = Box::new(StdFunction { storage: [0; 2], manager: None, invoker: None });
    // SAFETY: this is how libstdc++ copies: the manager builds a copy in uninitialised storage.
    unsafe { manager(&raw mut copy.storage, &raw const function.storage, CLONE) };
    copy.manager = Some(manager);
    Some(Arc::new(move |stream| {
        let (copy, mut stream) = (&copy, stream as usize as *mut c_void);
        // SAFETY: this is how libstdc++ calls: with the storage and the argument's address.
        unsafe { invoker(&raw const copy.storage, &raw mut stream) }
    }))
}

impl Drop for StdFunction {
    fn drop(&mut self) {
        if let Some(manager) = self.manager {
            let storage = &raw mut self.storage;
            // SAFETY: the storage holds a copy that the manager made, and is not used again.
            unsafe { manager(storage, storage, DESTROY) };
        }
    }
}
