//! Events, without timing.

use cudarc::driver::sys;

use super::{Cuda, handle, pointer};
use crate::failure::Failure;

impl Cuda {
    pub(crate) fn create_event(&self) -> Result<u64, Failure> {
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle.
        self.check(unsafe { (self.table.cuEventCreate)(&raw mut event, flags) })?;
        Ok(handle(event))
    }

    pub(crate) fn destroy_event(&self, event: u64) -> Result<(), Failure> {
        // SAFETY: legal at any time, also before the recorded work completed.
        self.check(unsafe { (self.table.cuEventDestroy_v2)(pointer(event)) })
    }

    pub(crate) fn record(&self, event: u64, stream: u64) -> Result<(), Failure> {
        // SAFETY: both handles are the driver's.
        self.check(unsafe { (self.table.cuEventRecord)(pointer(event), pointer(stream)) })
    }

    /// Whether the recorded work is complete.
    pub(crate) fn query(&self, event: u64) -> Result<bool, Failure> {
        // SAFETY: the handle is the driver's.
        let result = unsafe { (self.table.cuEventQuery)(pointer(event)) };
        match result {
            Failure::NOT_READY => Ok(false),
            _ => self.check(result).map(|()| true),
        }
    }

    pub(crate) fn wait(&self, stream: u64, event: u64) -> Result<(), Failure> {
        // SAFETY: both handles are the driver's; flags must be 0.
        self.check(unsafe { (self.table.cuStreamWaitEvent)(pointer(stream), pointer(event), 0) })
    }

    pub(crate) fn synchronize_event(&self, event: u64) -> Result<(), Failure> {
        // SAFETY: the handle is the driver's.
        self.check(unsafe { (self.table.cuEventSynchronize)(pointer(event)) })
    }
}
