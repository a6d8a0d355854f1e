//! [`TestDevice`] for a GPU. Skipped where there is none, or only a simulated one.
//!
//! Work is a kernel that spins. A block is filled with a pattern of its own, on its stream, when it
//! is handed out; each later use is a kernel that verifies it, and the last such kernels are queued
//! on every stream of the block right before it is freed. Memory given to another too early, or
//! mapped twice, is overwritten under them. Streams that are captured are left out: what is queued
//! there runs only when the graph does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use drystone::driver::{Call, CaptureMode, Driver, Stream};
use drystone_cuda::{CudaDevice, CudaOptions, device_count};
use drystone_testkit::{Gpu, Kernels, Mark};

use crate::altered::{Alteration, Altered};
use crate::device::{Made, TestDevice};
use crate::setup::skip;
use crate::simcuda;

/// Tests count on work to outlast the calls between two looks at it. Real calls take longer.
const SLOWER: u64 = 4;
/// Work that is to outlast a test does, and not by much.
const WORK_MAX_US: u64 = 500_000;
/// What the driver may keep of memory for itself, and other programs may take meanwhile.
const TOLERANCE_BYTES: u64 = 32 << 20;

pub fn presence() -> Result<(), &'static str> {
    static HAS_GPU: LazyLock<bool> = LazyLock::new(|| device_count().is_ok_and(|count| count > 0));
    if simcuda::is_simulated() || !*HAS_GPU { Err("no GPU") } else { Ok(()) }
}

pub fn device() -> Arc<dyn TestDevice> {
    Arc::new(CudaOnGpu::open(0))
}

/// Only one test at a time has the device: a capture of one would forbid calls to another, and
/// what is free is the device's.
struct Turn;

static IS_TAKEN: Mutex<bool> = Mutex::new(false);
static IS_FREE: Condvar = Condvar::new();

impl Turn {
    fn wait() -> Self {
        let taken = IS_TAKEN.lock().unwrap();
        *IS_FREE.wait_while(taken, |is_taken| *is_taken).unwrap() = true;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *IS_TAKEN.lock().unwrap() = false;
        IS_FREE.notify_one();
    }
}

/// Counts the allocator's calls.
struct Counted(Arc<AtomicU64>);

impl Alteration for Counted {
    fn before(&self, call: Call) {
        self.0.fetch_add(u64::from(!call.is_query()), Ordering::Relaxed);
    }
}

/// A live block with its pattern.
struct Cookie {
    words: u64,
    pattern: u32,
    /// When the pattern is written; `None` where nothing wrote it.
    written: Option<Mark>,
    /// The streams that use it, the one it is for first.
    streams: Vec<Stream>,
}

struct CudaOnGpu {
    gpu: Arc<Gpu>,
    kernels: Kernels,
    driver: Arc<dyn Driver>,
    calls: Arc<AtomicU64>,
    free_bytes: u64,
    made: Made,
    cookies: Mutex<BTreeMap<u64, Cookie>>,
    patterns: AtomicU64,
    /// Last: the others need the device when they go.
    _turn: Turn,
}

impl CudaOnGpu {
    fn open(ordinal: u32) -> Self {
        let turn = Turn::wait();
        let gpu = Arc::new(Gpu::open(ordinal).unwrap());
        let kernels = Kernels::load(&gpu).unwrap();
        // What is made at a first launch is made now.
        kernels.spin(1, Stream::DEFAULT).unwrap();
        kernels.verify(0, 0, 0, Stream::DEFAULT).unwrap();
        gpu.synchronize().unwrap();
        let inner: Arc<dyn Driver> =
            Arc::new(CudaDevice::open(ordinal, &CudaOptions::default()).unwrap());
        let calls = Arc::new(AtomicU64::new(0));
        let alteration = Counted(Arc::clone(&calls));
        Self {
            free_bytes: gpu.free_bytes().unwrap(),
            kernels,
            driver: Arc::new(Altered { inner, alteration }),
            calls,
            gpu,
            made: Made::with(Stream::DEFAULT),
            cookies: Mutex::default(),
            patterns: AtomicU64::new(1),
            _turn: turn,
        }
    }

    /// Whether what is queued on the stream runs.
    fn runs(&self, stream: Stream) -> bool {
        let is_alive = self.made.streams.lock().unwrap().contains(&stream);
        is_alive && !self.gpu.is_captured(stream).unwrap()
    }

    /// A kernel on the stream looks at a block.
    fn verify(&self, address: u64, cookie: &Cookie, stream: Stream) {
        if let Some(written) = cookie.written.as_ref().filter(|_| self.runs(stream)) {
            self.gpu.wait(stream, written).unwrap();
            self.kernels.verify(address, cookie.words, cookie.pattern, stream).unwrap();
        }
    }
}

impl TestDevice for CudaOnGpu {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::clone(&self.driver)
    }

    fn create_stream(&self) -> Stream {
        self.made.create_stream(&self.gpu)
    }

    fn destroy_stream(&self, stream: Stream) {
        for cookie in self.cookies.lock().unwrap().values_mut() {
            cookie.streams.retain(|&one| one != stream);
        }
        self.made.destroy_stream(&self.gpu, stream);
    }

    fn work(&self, stream: Stream, duration_us: u64) {
        let duration_us = (duration_us * SLOWER).min(WORK_MAX_US);
        self.kernels.spin(duration_us * 1000, stream).unwrap();
    }

    fn pass(&self, duration_us: u64) {
        thread::sleep(Duration::from_micros(duration_us * SLOWER));
    }

    fn begin_capture(&self, stream: Stream, mode: CaptureMode) {
        self.gpu.begin_capture(stream, mode).unwrap();
    }

    fn end_capture(&self, stream: Stream) -> bool {
        self.made.end_capture(&self.gpu, stream)
    }

    fn end_graphs(&self) {
        self.made.end_graphs(&self.gpu);
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    fn handed_out(&self, address: u64, bytes: u64, stream: Stream) {
        let words = bytes.div_ceil(4);
        let number = self.patterns.fetch_add(1, Ordering::Relaxed) as u32;
        let pattern = number.wrapping_mul(0x9e37_79b1);
        let written = self.runs(stream).then(|| {
            self.gpu.fill(address, words, pattern, stream).unwrap();
            self.gpu.mark(stream).unwrap()
        });
        let cookie = Cookie { words, pattern, written, streams: vec![stream] };
        self.cookies.lock().unwrap().insert(address, cookie);
    }

    fn used(&self, address: u64, stream: Stream) {
        let mut cookies = self.cookies.lock().unwrap();
        let Some(cookie) = cookies.get_mut(&address) else { return };
        self.verify(address, cookie, stream);
        if !cookie.streams.contains(&stream) {
            cookie.streams.push(stream);
        }
    }

    fn taken_back(&self, address: u64) {
        let Some(cookie) = self.cookies.lock().unwrap().remove(&address) else { return };
        cookie.streams.iter().for_each(|&stream| self.verify(address, &cookie, stream));
    }

    fn verdict(&self) -> Result<(), String> {
        match self.kernels.mismatch() {
            None => Ok(()),
            Some(address) => Err(format!("the word at {address:#x} is another block's")),
        }
    }

    /// The program's own streams go first.
    fn emptiness(&self) -> Result<(), String> {
        self.made.destroy_streams(&self.gpu);
        self.gpu.synchronize().unwrap();
        self.verdict()?;
        let left = self.free_bytes.saturating_sub(self.gpu.free_bytes().unwrap());
        if left <= TOLERANCE_BYTES { Ok(()) } else { Err(format!("{left} bytes")) }
    }
}

/// What runs on a GPU is run here, too: the kernels are loaded and launched, though they do nothing
/// on the simulated device.
#[test]
fn the_calls_of_a_real_device_are_those_of_cuda() {
    if let Err(reason) = simcuda::presence() {
        return skip(reason);
    }
    let simulated = simcuda::device_with("");
    let device = CudaOnGpu::open(simulated.ordinal);
    let (stream, other) = (device.create_stream(), device.create_stream());
    let address = device.driver().malloc(4096).unwrap();
    assert_eq!(device.calls(), 1);
    device.handed_out(address, 4095, stream);
    device.used(address, other);
    device.work(other, 10);
    device.begin_capture(other, CaptureMode::Global);
    device.used(address, other);
    device.work(other, 10);
    assert!(device.end_capture(other));
    device.end_graphs();
    device.destroy_stream(other);
    device.taken_back(address);
    device.pass(1);
    assert_eq!(device.verdict(), Ok(()));
    device.driver().free(address).unwrap();
    assert_eq!(device.emptiness(), Ok(()));
    // A block that is not given back is missed.
    let address = device.driver().malloc(64 << 20).unwrap();
    assert_eq!(device.emptiness(), Err(format!("{} bytes", 64 << 20)));
    device.driver().free(address).unwrap();
    assert_eq!(simulated.verdict(), Ok(()));
}
