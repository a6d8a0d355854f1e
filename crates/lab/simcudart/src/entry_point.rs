//! Functions of the driver, found by name.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::device::{RUNTIME_12, RUNTIME_13};
use crate::driver::{self, Out};
use crate::error::{self, done};
use crate::export::{adapt, exports};

/// Functions whose null stream is the thread's own.
const PER_THREAD_DEFAULT_STREAM: c_ulonglong = 2;

exports! {
    fn cudaGetDriverEntryPointByVersion(
        name: *const c_char, function: Out<*mut c_void>, version: c_uint, flags: c_ulonglong,
        found: Out<c_int>
    ) {
        if name.is_null() || function.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let version = c_int::try_from(version).map_err(|_| error::INVALID_VALUE)?;
        let mut outcome = 0;
        let to = &mut outcome;
        // SAFETY: the caller passes a name.
        let status = unsafe { driver::cuGetProcAddress_v2(name, function, version, flags, to) };
        match (outcome, found.write(outcome)) {
            (0, _) => done(status),
            (_, None) => Err(error::SYMBOL_NOT_FOUND),
            // What was not found is told by the outcome alone.
            _ => Ok(()),
        }
    }
}

/// No wish, or the default one, means what the program was built for.
fn built_for(flags: c_ulonglong) -> c_ulonglong {
    if flags == 0 { PER_THREAD_DEFAULT_STREAM } else { flags }
}

adapt! {
    cudaGetDriverEntryPointByVersion_ptsz (
        name: *const c_char, function: Out<*mut c_void>, version: c_uint, flags: c_ulonglong,
        found: Out<c_int>
    ) => cudaGetDriverEntryPointByVersion(name, function, version, built_for(flags), found);
}

/// The function as of a `libcudart`'s own version.
macro_rules! as_of {
    ($($name:ident => $by_version:ident as of $version:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            name: *const c_char,
            function: Out<*mut c_void>,
            flags: c_ulonglong,
            found: Out<c_int>,
        ) -> error::Status {
            // SAFETY: the contract is the same.
            unsafe { $by_version(name, function, $version.unsigned_abs(), flags, found) }
        }
    )*};
}

as_of! {
    cudaGetDriverEntryPoint_v12 => cudaGetDriverEntryPointByVersion as of RUNTIME_12;
    cudaGetDriverEntryPoint_v13 => cudaGetDriverEntryPointByVersion as of RUNTIME_13;
    cudaGetDriverEntryPoint_v12_ptsz => cudaGetDriverEntryPointByVersion_ptsz as of RUNTIME_12;
    cudaGetDriverEntryPoint_v13_ptsz => cudaGetDriverEntryPointByVersion_ptsz as of RUNTIME_13;
}
