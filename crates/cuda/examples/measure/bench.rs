//! [`Bench`]: a device, and how a call on it is timed.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use drystone_cuda::{CudaDevice, CudaOptions};
use drystone_driver::{DeviceInfo, Driver, Handle, Stream};
use drystone_testkit::{Gpu, Kernels};

use crate::Result;

/// How long the kernel runs that calls are timed beside.
pub(crate) const KERNEL_MS: u64 = 20;

pub(crate) struct Bench {
    pub(crate) device: CudaDevice,
    pub(crate) info: DeviceInfo,
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) kernels: Kernels,
    /// Where the timed calls go, if to a stream.
    pub(crate) stream: Stream,
    /// Where the kernel runs.
    other: Stream,
    pub(crate) repeats: usize,
    /// Whether a kernel is to run while a call is timed.
    is_busy: Cell<bool>,
}

/// What many calls took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) median: Duration,
    pub(crate) worst: Duration,
}

/// A call timed by [`Bench::time`], with what it needs before and after.
pub(crate) type Step<'a> = &'a dyn Fn(&Bench) -> Result<Duration>;

/// What the calls in `body` take.
pub(crate) fn elapsed<T, E>(
    body: impl FnOnce() -> std::result::Result<T, E>,
) -> Result<(Duration, T)>
where
    Box<dyn std::error::Error>: From<E>,
{
    let start = Instant::now();
    let done = body();
    let taken = start.elapsed();
    Ok((taken, done?))
}

impl Bench {
    pub(crate) fn open(ordinal: u32, repeats: usize) -> Result<Self> {
        let device = CudaDevice::open(ordinal, &CudaOptions::default())?;
        let gpu = Arc::new(Gpu::open(ordinal)?);
        // As in a program that has made the device its own: no call changes the context.
        gpu.make_current()?;
        let kernels = Kernels::load(&gpu)?;
        let (stream, other) = (gpu.create_stream()?, gpu.create_stream()?);
        for stream in [stream, other] {
            kernels.spin(1, stream)?;
        }
        gpu.synchronize()?;
        let (info, is_busy) = (device.info(), Cell::new(false));
        Ok(Self { device, info, gpu, kernels, stream, other, repeats, is_busy })
    }

    /// Repeats a step, each time beside a kernel of its own if `is_busy`.
    pub(crate) fn repeat(&self, is_busy: bool, step: Step<'_>) -> Result<Times> {
        let mut times = Vec::with_capacity(self.repeats);
        self.is_busy.set(is_busy);
        step(self)?;
        for _ in 0..self.repeats {
            self.gpu.synchronize()?;
            times.push(step(self)?);
        }
        self.gpu.synchronize()?;
        times.sort_unstable();
        Ok(Times { median: times[times.len() / 2], worst: times[times.len() - 1] })
    }

    /// What a call takes. The kernel begins right before: nothing else can have waited for it.
    pub(crate) fn time<T, E>(
        &self,
        body: impl FnOnce() -> std::result::Result<T, E>,
    ) -> Result<(Duration, T)>
    where
        Box<dyn std::error::Error>: From<E>,
    {
        if self.is_busy.get() {
            self.kernels.spin(KERNEL_MS * 1_000_000, self.other)?;
            // Until it runs.
            thread::sleep(Duration::from_millis(1));
        }
        elapsed(body)
    }

    /// Addresses with so many granules mapped to them, not accessible yet.
    pub(crate) fn map_granules(&self, granules: u64) -> Result<Mapped> {
        let each = self.info.granularity_bytes;
        let bytes = granules * each;
        let address = self.device.reserve(bytes, 0)?;
        let mut handles = Vec::new();
        for at in 0..granules {
            let handle = self.device.create(each)?;
            handles.push(handle);
            self.device.map(address + at * each, each, handle)?;
        }
        Ok(Mapped { address, bytes, handles })
    }

    /// Gives back what is not mapped any more.
    pub(crate) fn give_back(&self, mapped: Mapped) -> Result {
        for handle in mapped.handles {
            self.device.release(handle)?;
        }
        Ok(self.device.unreserve(mapped.address, mapped.bytes)?)
    }
}

/// Addresses and what is mapped there.
pub(crate) struct Mapped {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    handles: Vec<Handle>,
}
