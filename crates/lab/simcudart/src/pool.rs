//! Memory pools.

use std::ffi::{c_int, c_uint, c_void};

use crate::context::{in_context, in_driver};
use crate::driver::{self, Address, Handle, Location, Status};
use crate::forward::forward;

forward! {
    cudaMemPoolCreate => cuMemPoolCreate(pool: *mut Handle, properties: *const c_void);
    cudaMemPoolDestroy => cuMemPoolDestroy(pool: Handle);
    cudaMemPoolTrimTo => cuMemPoolTrimTo(pool: Handle, keep: usize);
    cudaMemPoolGetAttribute =>
        cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cudaMemPoolSetAttribute =>
        cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    cudaMemPoolSetAccess =>
        cuMemPoolSetAccess(pool: Handle, access: *const c_void, count: usize);
    cudaMemPoolGetAccess =>
        cuMemPoolGetAccess(flags: *mut c_int, pool: Handle, at: *mut Location);
    cudaMemGetDefaultMemPool =>
        cuMemGetDefaultMemPool(pool: *mut Handle, at: *mut Location, kind: c_int);
    cudaMemGetMemPool => cuMemGetMemPool(pool: *mut Handle, at: *mut Location, kind: c_int);
    cudaMemSetMemPool => cuMemSetMemPool(at: *mut Location, kind: c_int, pool: Handle);
    cudaMemPoolExportPointer => cuMemPoolExportPointer(data: *mut c_void, address: Address);
    cudaMemPoolImportPointer =>
        cuMemPoolImportPointer(address: *mut Address, pool: Handle, data: *mut c_void);
}

/// The pool that a device had from the beginning.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int) -> Status {
    // SAFETY: the caller passes room for a handle.
    in_driver(|| unsafe { driver::cuDeviceGetDefaultMemPool(pool, device) })
}

/// The pool that a device's requests go to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetMemPool(pool: *mut Handle, device: c_int) -> Status {
    // SAFETY: the caller passes room for a handle.
    in_driver(|| unsafe { driver::cuDeviceGetMemPool(pool, device) })
}

/// Lets a device's requests go to another pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceSetMemPool(device: c_int, pool: Handle) -> Status {
    // SAFETY: the caller passes a pool that is alive.
    in_driver(|| unsafe { driver::cuDeviceSetMemPool(device, pool) })
}

/// Makes a handle by which another process opens a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolExportToShareableHandle(
    handle: *mut c_void,
    pool: Handle,
    kind: c_int,
    flags: c_uint,
) -> Status {
    let flags = flags.into();
    // SAFETY: the caller passes room for a handle of this kind.
    in_context(|| unsafe { driver::cuMemPoolExportToShareableHandle(handle, pool, kind, flags) })
}

/// Opens the pool of another process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaMemPoolImportFromShareableHandle(
    pool: *mut Handle,
    handle: *mut c_void,
    kind: c_int,
    flags: c_uint,
) -> Status {
    let flags = flags.into();
    // SAFETY: the caller passes a handle of this kind and room for a pool.
    in_context(|| unsafe { driver::cuMemPoolImportFromShareableHandle(pool, handle, kind, flags) })
}
