//! Memory pools.

use std::ffi::{c_int, c_uint, c_void};

use crate::context::make_current;
use crate::driver::{self, Address, Handle, Location};
use crate::error::done;
use crate::export::{exports, forward};

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

forward! { without context:
    cudaDeviceGetDefaultMemPool => cuDeviceGetDefaultMemPool(pool: *mut Handle, device: c_int);
    cudaDeviceGetMemPool => cuDeviceGetMemPool(pool: *mut Handle, device: c_int);
    cudaDeviceSetMemPool => cuDeviceSetMemPool(device: c_int, pool: Handle);
}

// The driver's flags are wider.
exports! {
    /// Makes a handle by which another process opens a pool.
    fn cudaMemPoolExportToShareableHandle(
        to: *mut c_void, pool: Handle, kind: c_int, flags: c_uint
    ) {
        make_current()?;
        // SAFETY: the caller passes room for a handle of this kind.
        done(unsafe { driver::cuMemPoolExportToShareableHandle(to, pool, kind, flags.into()) })
    }

    /// Opens the pool of another process.
    fn cudaMemPoolImportFromShareableHandle(
        to: *mut Handle, from: *mut c_void, kind: c_int, flags: c_uint
    ) {
        make_current()?;
        // SAFETY: the caller passes a handle of this kind and room for a pool.
        done(unsafe { driver::cuMemPoolImportFromShareableHandle(to, from, kind, flags.into()) })
    }
}
