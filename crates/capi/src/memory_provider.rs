//! Pools of plain memory, which the program may give.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use drystone::MemoryProvider;

use crate::barrier::answer;
use crate::status::{Failure, Status};
use crate::{process, registry};

type Allocate = unsafe extern "C" fn(data: *mut c_void, bytes: usize) -> *mut c_void;
type Free = unsafe extern "C" fn(data: *mut c_void, ptr: *mut c_void, bytes: usize);

/// Functions of the program, and what they are to be called with.
struct Program {
    allocate: Allocate,
    free: Free,
    data: *mut c_void,
}

// SAFETY: the header says that they are called from any thread.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl MemoryProvider for Program {
    fn allocate(&self, bytes: u64) -> Option<u64> {
        // SAFETY: the program's own function, called as the header says.
        let address = unsafe { (self.allocate)(self.data, bytes as usize) };
        (!address.is_null()).then_some(address as u64)
    }

    fn free(&self, address: u64, bytes: u64) {
        // SAFETY: as above.
        unsafe { (self.free)(self.data, address as usize as *mut c_void, bytes as usize) };
    }
}

/// For `drystone_pool_create_plain`: no two blocks of the pool share a segment.
pub const DRYSTONE_POOL_UNSPLIT: c_uint = 1;

/// As `drystone_pool_create`, but of plain memory, which the program provides, or the driver if
/// both functions are null. `allocate` returns the address of so many bytes of the device, a
/// multiple of 512, or null if there are none. `free` is called with each of them once nothing uses
/// it any more, after the pool was released. A pool that exists already keeps its memory, and has
/// one use more.
///
/// Both functions are called with `data`, from any thread but never by two at once, and must
/// neither throw nor call this library. They must stay for as long as the process lives.
///
/// `flags` is 0, or DRYSTONE_POOL_UNSPLIT: for memory that others keep a note of by its segment,
/// such as a signal pad of symmetric memory. Each block is a whole number of 2 MiB then.
///
/// Statuses: INVALID_VALUE (0, 0 is the default pool; one function is null; a flag is unknown),
/// INVALID_DEVICE, BAD_OPTION (also: backend `async` has no such pools), NO_DRIVER, EXITING,
/// FORKED. Any thread.
///
/// # Safety
/// The functions are null or such functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_pool_create_plain(
    device: c_int,
    id0: u64,
    id1: u64,
    allocate: Option<unsafe extern "C" fn(data: *mut c_void, bytes: usize) -> *mut c_void>,
    free: Option<unsafe extern "C" fn(data: *mut c_void, ptr: *mut c_void, bytes: usize)>,
    data: *mut c_void,
    flags: c_uint,
) -> Status {
    answer(|| {
        let invalid = |what| Err(Failure::new(Status::InvalidValue, what));
        let provider = match (allocate, free) {
            (Some(allocate), Some(free)) => {
                Some(Arc::new(Program { allocate, free, data }) as Arc<dyn MemoryProvider>)
            }
            (None, None) => None,
            _ => return invalid("one function is a null pointer"),
        };
        let is_split = match flags {
            0 => true,
            DRYSTONE_POOL_UNSPLIT => false,
            _ => return invalid("flags has one that is unknown"),
        };
        process::check()?;
        let device = registry::get(device)?;
        device.pools.acquire_plain(&device.allocator, (id0, id1), provider, is_split)
    })
}
