//! Physical memory that other processes know by a file descriptor. Asks for
//! `Cuda::has_virtual_memory`.
//!
//! Descriptors of Windows are refused: there the driver wants security attributes with each.

use drystone_driver::Descriptor;

use super::Cuda;
use crate::failure::Failure;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
#[cfg(unix)]
const POSIX_FD: u32 = 1;

#[cfg(unix)]
impl Cuda {
    /// A descriptor of the memory of a handle that was created to have one. It is closed where the
    /// process becomes another program.
    pub(crate) fn export(&self, handle: u64) -> Result<Descriptor, Failure> {
        use std::os::fd::FromRawFd;

        let mut number: i32 = -1;
        let place = (&raw mut number).cast();
        // SAFETY: for this type of handle an `int` is written; flags must be 0.
        self.check(unsafe {
            (self.table.cuMemExportToShareableHandle)(place, handle, POSIX_FD, 0)
        })?;
        // SAFETY: it is open. One that cannot be marked stays as it is.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        // SAFETY: the driver opened it for the caller.
        Ok(unsafe { Descriptor::from_raw_fd(number) })
    }

    pub(crate) fn import(&self, descriptor: &Descriptor) -> Result<u64, Failure> {
        use std::os::fd::AsRawFd;

        let number = descriptor.as_raw_fd();
        let number = std::ptr::without_provenance_mut(number.cast_unsigned() as usize);
        let mut handle = 0;
        // SAFETY: for this type of handle the pointer is the number of a descriptor, which is open;
        // writes one handle.
        self.check(unsafe {
            (self.table.cuMemImportFromShareableHandle)(&raw mut handle, number, POSIX_FD)
        })?;
        Ok(handle)
    }
}

#[cfg(windows)]
impl Cuda {
    pub(crate) fn export(&self, _: u64) -> Result<Descriptor, Failure> {
        Err(Failure { number: Failure::NOT_SUPPORTED, name: "" })
    }

    pub(crate) fn import(&self, _: &Descriptor) -> Result<u64, Failure> {
        Err(Failure { number: Failure::NOT_SUPPORTED, name: "" })
    }
}
