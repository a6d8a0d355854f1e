//! [`Kernels`]: kernels that take a given time, and that verify patterns.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use cudarc::driver::sys::{CU_MEMHOSTALLOC_DEVICEMAP, CUfunction};
use drystone_driver::Stream;

use super::cuda::{Result, cuda};
use super::device::{Gpu, raw};

/// In PTX, which the driver translates for any device.
const TEXT: &str = include_str!("kernels.ptx");

/// Kernels of one device. What they find they write where the host reads it at any time.
#[derive(Debug)]
pub struct Kernels {
    gpu: Arc<Gpu>,
    module: usize,
    spin: usize,
    verify: usize,
    /// Host memory that the device reaches: the address of a wrong word, or 0.
    found: usize,
    found_by_device: u64,
}

impl Kernels {
    /// Loads them.
    pub fn load(gpu: &Arc<Gpu>) -> Result<Self> {
        let text = CString::new(TEXT).unwrap_or_default();
        gpu.with(|| {
            let mut module = null_mut();
            cuda!(cuModuleLoadData(&raw mut module, text.as_ptr().cast()))?;
            let function = |name: &CStr| {
                let mut function: CUfunction = null_mut();
                cuda!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()))?;
                Ok(function.expose_provenance())
            };
            let (spin, verify) = (function(c"spin")?, function(c"verify")?);
            let (mut found, mut found_by_device) = (null_mut(), 0);
            cuda!(cuMemHostAlloc(&raw mut found, 8, CU_MEMHOSTALLOC_DEVICEMAP))?;
            cuda!(cuMemHostGetDevicePointer_v2(&raw mut found_by_device, found, 0))?;
            let gpu = Arc::clone(gpu);
            let (module, found) = (module.expose_provenance(), found.expose_provenance());
            let kernels = Self { gpu, module, spin, verify, found, found_by_device };
            // SAFETY: eight bytes of the host's, aligned, that nobody else has yet.
            unsafe { kernels.place().write_volatile(0) };
            Ok(kernels)
        })
    }

    const fn place(&self) -> *mut u64 {
        with_exposed_provenance_mut(self.found)
    }

    /// Queues a kernel that takes so long.
    pub fn spin(&self, duration_ns: u64, stream: Stream) -> Result {
        let mut duration_ns = duration_ns;
        self.launch(self.spin, (1, 1), stream, &mut [(&raw mut duration_ns).cast()])
    }

    /// Queues a kernel that looks whether words of 32 bits hold a pattern.
    pub fn verify(&self, address: u64, words: u64, pattern: u32, stream: Stream) -> Result {
        let (mut first, mut words, mut pattern) = (address, words, pattern);
        let mut found = self.found_by_device;
        let blocks = words.div_ceil(256).clamp(1, 1024) as u32;
        let mut arguments = [
            (&raw mut first).cast(),
            (&raw mut words).cast(),
            (&raw mut pattern).cast(),
            (&raw mut found).cast(),
        ];
        self.launch(self.verify, (blocks, 256), stream, &mut arguments)
    }

    /// The address of a word that was not what it should be, if a kernel has found one so far.
    pub fn mismatch(&self) -> Option<u64> {
        // SAFETY: the allocation lives as long as this; kernels write a whole number at once.
        let found = unsafe { self.place().read_volatile() };
        (found != 0).then_some(found)
    }

    fn launch(
        &self,
        function: usize,
        (blocks, threads): (u32, u32),
        stream: Stream,
        arguments: &mut [*mut c_void],
    ) -> Result {
        let (function, arguments) = (with_exposed_provenance_mut(function), arguments.as_mut_ptr());
        self.gpu.with(|| {
            let stream = raw(stream);
            let none = null_mut();
            cuda!(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, none))
        })
    }
}

impl Drop for Kernels {
    /// Waits for them first. What fails here is only lost.
    fn drop(&mut self) {
        let _ = self.gpu.with(|| {
            cuda!(cuCtxSynchronize())?;
            cuda!(cuModuleUnload(with_exposed_provenance_mut(self.module)))?;
            cuda!(cuMemFreeHost(with_exposed_provenance_mut(self.found)))
        });
    }
}
