//! [`Table`]: the driver's functions, by name, as they were found in its library.
//!
//! Every one returns a plain number: a driver newer than any bindings may return errors that they
//! do not list, which as a value of an enumeration would be undefined behaviour.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{CUmemAllocationProp, CUmemPoolProps};
use libloading::Library;

use crate::failure::Failure;
use crate::properties::Access;

/// A handle, as the driver takes it: it points to something of the driver's.
pub(super) type Pointer = *mut c_void;

/// Where a library has a symbol, whose name ends in a zero or is copied to get one.
#[inline(never)]
pub(super) fn address(library: &Library, name: &str) -> Option<*const ()> {
    // SAFETY: only the address is looked at.
    unsafe { library.get::<*const ()>(name) }.ok().map(|found| *found)
}

/// The same, or another address where there is none.
#[inline(never)]
fn address_or(library: &Library, name: &str, other: *const ()) -> *const () {
    address(library, name).unwrap_or(other)
}

macro_rules! table {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The functions that are called.
        #[expect(non_snake_case, reason = "the names that CUDA gives them")]
        pub(super) struct Table {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> u32,)*
        }

        impl Table {
            /// A function that the library lacks refuses every call.
            pub(super) fn of(library: &Library) -> Self {
                Self {
                    $($name: {
                        type Function = unsafe extern "C" fn($($argument),*) -> u32;
                        unsafe extern "C" fn missing($(_: $argument),*) -> u32 {
                            Failure::NOT_SUPPORTED
                        }
                        let name = concat!(stringify!($name), "\0");
                        let found = address_or(library, name, missing as *const ());
                        // SAFETY: the driver's function of this name has this type.
                        unsafe { std::mem::transmute::<*const (), Function>(found) }
                    },)*
                }
            }
        }
    };
}

table! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(u32, *mut *const c_char);
    cuDeviceGet(*mut c_int, c_int);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGetAttribute(*mut c_int, c_int, c_int);
    cuDeviceGetUuid_v2(*mut [u8; 16], c_int);
    cuDeviceTotalMem_v2(*mut usize, c_int);
    cuDeviceCanAccessPeer(*mut c_int, c_int, c_int);
    cuDevicePrimaryCtxRetain(*mut Pointer, c_int);
    cuDevicePrimaryCtxRelease_v2(c_int);
    cuDevicePrimaryCtxGetState(c_int, *mut c_uint, *mut c_int);
    cuCtxGetId(Pointer, *mut u64);
    cuCtxGetCurrent(*mut Pointer);
    cuCtxSetCurrent(Pointer);
    cuCtxGetDevice(*mut c_int);
    cuCtxSynchronize();
    cuCtxEnablePeerAccess(Pointer, c_uint);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut u64, usize);
    cuMemFree_v2(u64);
    cuEventCreate(*mut Pointer, c_uint);
    cuEventDestroy_v2(Pointer);
    cuEventRecord(Pointer, Pointer);
    cuEventQuery(Pointer);
    cuEventSynchronize(Pointer);
    cuStreamWaitEvent(Pointer, Pointer, c_uint);
    cuStreamSynchronize(Pointer);
    cuStreamQuery(Pointer);
    cuStreamGetCtx(Pointer, *mut Pointer);
    cuStreamGetCtx_v2(Pointer, *mut Pointer, *mut Pointer);
    cuStreamGetId(Pointer, *mut u64);
    cuStreamIsCapturing(Pointer, *mut u32);
    cuThreadExchangeStreamCaptureMode(*mut u32);
    cuMemGetAllocationGranularity(*mut usize, *const CUmemAllocationProp, c_int);
    cuMemAddressReserve(*mut u64, usize, usize, u64, u64);
    cuMemAddressFree(u64, usize);
    cuMemCreate(*mut u64, usize, *const CUmemAllocationProp, u64);
    cuMemRelease(u64);
    cuMemMap(u64, usize, usize, u64, u64);
    cuMemSetAccess(u64, usize, *const Access, usize);
    cuMemUnmap(u64, usize);
    cuMemExportToShareableHandle(Pointer, u64, c_uint, u64);
    cuMemImportFromShareableHandle(*mut u64, Pointer, c_uint);
    cuMemPoolCreate(*mut Pointer, *const CUmemPoolProps);
    cuMemPoolDestroy(Pointer);
    cuMemPoolTrimTo(Pointer, usize);
    cuMemPoolGetAttribute(Pointer, c_uint, Pointer);
    cuMemPoolSetAttribute(Pointer, c_uint, Pointer);
    cuMemPoolSetAccess(Pointer, *const Access, usize);
    cuMemAllocFromPoolAsync(*mut u64, usize, Pointer, Pointer);
    cuMemFreeAsync(u64, Pointer);
    cuMemHostAlloc(*mut Pointer, usize, c_uint);
    cuMemcpyAsync(u64, u64, usize, Pointer);
    cuStreamCreate(*mut Pointer, c_uint);
    cuStreamDestroy_v2(Pointer);
    cuStreamGetFlags(Pointer, *mut c_uint);
    cuStreamBatchMemOp_v2(Pointer, c_uint, *const Operation, c_uint);
}

/// One of a batch of operations on memory (`CUstreamBatchMemOpParams`): what, where, the value,
/// flags.
pub(super) type Operation = [u64; 6];
