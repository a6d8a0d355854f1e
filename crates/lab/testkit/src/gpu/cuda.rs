//! A call of CUDA and its result.

use cudarc::driver::sys::CUresult;

/// A call of CUDA failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function} failed: CUDA error {number}")]
pub struct Failed {
    /// The function.
    pub function: &'static str,
    /// CUDA's number of the error.
    pub number: u32,
}

pub(crate) type Result<T = ()> = std::result::Result<T, Failed>;

pub(crate) fn outcome(function: &'static str, result: CUresult) -> Result {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(Failed { function, number: error as u32 }),
    }
}

/// Calls a function of CUDA. Arguments that it writes to are pointers to locals of the caller.
macro_rules! cuda {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: pointers are to live memory of the right type, or to device memory and objects
        // of CUDA's that whoever called this crate vouches for.
        let result = unsafe { cudarc::driver::sys::$function($($argument),*) };
        $crate::gpu::cuda::outcome(stringify!($function), result)
    }};
}
pub(crate) use cuda;
