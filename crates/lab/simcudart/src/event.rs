//! Events.

use std::ffi::c_uint;

use crate::driver::{Handle, IpcHandle, Stream};
use crate::error::done;
use crate::export::{exports, forward};

forward! {
    cudaEventCreateWithFlags => cuEventCreate(event: *mut Handle, flags: c_uint);
    cudaEventDestroy => cuEventDestroy_v2(event: Handle);
    cudaEventRecord / cudaEventRecord_ptsz => cuEventRecord(event: Handle, stream: Stream);
    cudaEventRecordWithFlags / cudaEventRecordWithFlags_ptsz =>
        cuEventRecordWithFlags(event: Handle, stream: Stream, flags: c_uint);
    cudaEventQuery => cuEventQuery(event: Handle);
    cudaEventSynchronize => cuEventSynchronize(event: Handle);
    cudaEventElapsedTime => cuEventElapsedTime(ms: *mut f32, start: Handle, end: Handle);
    cudaEventElapsedTime_v2 => cuEventElapsedTime(ms: *mut f32, start: Handle, end: Handle);
    cudaIpcGetEventHandle => cuIpcGetEventHandle(handle: *mut IpcHandle, event: Handle);
    cudaIpcOpenEventHandle => cuIpcOpenEventHandle(event: *mut Handle, handle: IpcHandle);
}

exports! {
    /// Makes an event without flags.
    fn cudaEventCreate(event: *mut Handle) {
        // SAFETY: the caller passes room for a handle.
        done(unsafe { cudaEventCreateWithFlags(event, 0) })
    }
}
