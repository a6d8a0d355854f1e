//! Each call fails once, by the simulated device's plan: the error names call, code and figures,
//! and the same call made again succeeds. Skips on a real device, which cannot be told to fail.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use drystone_driver::{
    Call, CaptureMode, Driver, DriverError, ErrorCode, MemoryPoolConfig, Stream,
};
use libloading::Library;

use crate::raw;
use crate::scenario::open_at;

type Fail = unsafe extern "C" fn(c_int, *const c_char, u64, c_int, c_int) -> c_int;

/// A device whose calls fail as planned.
struct Faulty<'a> {
    device: &'a dyn Driver,
    library: &'a Library,
    /// The device whose context is current when the call is made.
    ordinal: c_int,
    /// The driver's number and name of the error, and ours.
    number: c_int,
    name: &'static str,
    code: ErrorCode,
    failed: Vec<Call>,
}

impl Faulty<'_> {
    /// Makes the next such call fail, and sees that it does; then makes it again.
    fn twice<R>(
        &mut self,
        call: Call,
        (bytes, address): (u64, u64),
        work: impl Fn(&dyn Driver) -> Result<R, DriverError>,
    ) -> R {
        let name = CString::new(call.cuda_name()).unwrap();
        // SAFETY: the function has this signature.
        let fail = unsafe { self.library.get::<Fail>("simcuda_fail") }.unwrap();
        // SAFETY: reads the name.
        let is_planned = unsafe { fail(self.ordinal, name.as_ptr(), 1, 0, self.number) };
        assert_eq!(is_planned, 0, "{call:?}");
        let error = work(self.device).map(|_| call).unwrap_err();
        assert_eq!((error.call, error.code), (call, self.code));
        assert_eq!((error.bytes, error.address), (bytes, address), "{call:?}");
        assert_eq!(error.cuda_error, self.name, "{call:?}");
        assert!(error.to_string().starts_with(call.cuda_name()), "{error}");
        self.failed.push(call);
        work(self.device).unwrap()
    }

    fn virtual_memory(&mut self) {
        let granule = self.device.info().granularity_bytes;
        let address = self.twice(Call::Reserve, (granule, 0), |device| device.reserve(granule, 0));
        let handle = self.twice(Call::Create, (granule, 0), |device| device.create(granule));
        let descriptor = self.twice(Call::Export, (0, 0), |device| device.export(handle));
        let again = self.twice(Call::Import, (0, 0), |device| device.import(&descriptor));
        self.device.release(again).unwrap();
        let range = (granule, address);
        self.twice(Call::Map, range, |device| device.map(address, granule, handle));
        self.twice(Call::SetAccess, range, |device| device.set_access(address, granule));
        self.twice(Call::Unmap, range, |device| device.unmap(address, granule));
        self.twice(Call::Release, (0, 0), |device| device.release(handle));
        self.twice(Call::Unreserve, range, |device| device.unreserve(address, granule));
    }

    fn memory(&mut self) {
        self.twice(Call::MemoryInfo, (0, 0), |device| device.memory_info());
        let address = self.twice(Call::Malloc, (512, 0), |device| device.malloc(512));
        self.twice(Call::Free, (0, address), |device| device.free(address));
        let config = MemoryPoolConfig::default();
        let pool =
            self.twice(Call::CreateMemoryPool, (0, 0), |device| device.create_memory_pool(&config));
        let stream = Stream::DEFAULT;
        let address = self
            .twice(Call::MallocAsync, (512, 0), |device| device.malloc_async(pool, 512, stream));
        self.twice(Call::FreeAsync, (0, address), |device| device.free_async(address, stream));
        self.twice(Call::TrimMemoryPool, (0, 0), |device| device.trim_memory_pool(pool, 0));
        self.twice(Call::MemoryPoolUsage, (0, 0), |device| device.memory_pool_usage(pool));
        self.twice(Call::DestroyMemoryPool, (0, 0), |device| device.destroy_memory_pool(pool));
    }

    fn streams(&mut self) {
        let stream = Stream(raw::create_stream());
        let event = self.twice(Call::CreateEvent, (0, 0), |device| device.create_event());
        self.twice(Call::Record, (0, 0), |device| device.record(event, stream));
        self.twice(Call::Wait, (0, 0), |device| device.wait(stream, event));
        self.twice(Call::Query, (0, 0), |device| device.query(event));
        self.twice(Call::SynchronizeEvent, (0, 0), |device| device.synchronize_event(event));
        self.twice(Call::SynchronizeStream, (0, 0), |device| device.synchronize_stream(stream));
        self.twice(Call::SynchronizeDevice, (0, 0), |device| device.synchronize_device());
        self.twice(Call::StreamUid, (0, 0), |device| device.stream_uid(stream));
        self.twice(Call::CaptureStatus, (0, 0), |device| device.capture_status(stream));
        self.twice(Call::ExchangeCaptureMode, (0, 0), |device| {
            device.exchange_capture_mode(CaptureMode::Global)
        });
        self.twice(Call::DestroyEvent, (0, 0), |device| device.destroy_event(event));
        raw::destroy_stream(stream.0);
    }
}

/// The library of the simulated driver; `None` on a real one.
fn simulated() -> Option<Library> {
    // SAFETY: the library is loaded already.
    let library = unsafe { Library::new("libcuda.so.1") }.unwrap();
    // SAFETY: only looked for.
    let is_simulated = unsafe { library.get::<Fail>("simcuda_fail") }.is_ok();
    if !is_simulated {
        println!("a real device cannot be told to fail");
    }
    is_simulated.then_some(library)
}

/// Makes the n-th call of a function from now on fail once with an unknown error, where the driver
/// can be told to.
pub(crate) fn fail_once(function: &CStr, nth: u64) -> bool {
    fail(function, nth, false, 999)
}

/// The same with an error by its number, forever where that is asked for.
pub(crate) fn fail(function: &CStr, nth: u64, for_ever: bool, number: c_int) -> bool {
    let Some(library) = simulated() else { return false };
    // SAFETY: the function has this signature.
    let fail = unsafe { library.get::<Fail>("simcuda_fail") }.unwrap();
    // SAFETY: reads the name.
    let planned = unsafe { fail(0, function.as_ptr(), nth, for_ever.into(), number) };
    assert_eq!(planned, 0);
    true
}

/// No call fails any more by plan.
pub(crate) fn clear_faults() {
    let Some(library) = simulated() else { return };
    // SAFETY: the function has this signature.
    let clear = unsafe { library.get::<extern "C" fn(c_int) -> c_int>("simcuda_clear_faults") };
    assert_eq!(clear.unwrap()(0), 0);
}

/// A kernel of that length is queued, if the driver is the simulated one.
pub(crate) fn keep_busy(ordinal: c_int, stream: Stream, ns: u64) -> bool {
    type Launch = unsafe extern "C" fn(c_int, *mut c_void, u64) -> c_int;
    let Some(library) = simulated() else { return false };
    // SAFETY: the function has this signature.
    let launch = unsafe { library.get::<Launch>("simcuda_launch") }.unwrap();
    let stream = std::ptr::with_exposed_provenance_mut(stream.0 as usize);
    // SAFETY: a stream of the device.
    assert_eq!(unsafe { launch(ordinal, stream, ns) }, 0);
    true
}

/// Whether the driver is the simulated one.
pub(crate) fn is_simulated() -> bool {
    simulated().is_some()
}

#[test]
fn a_call_that_fails_once_names_everything_and_succeeds_when_made_again() {
    crate::scenario!(1, "", || {
        let Some(library) = &simulated() else { return };
        raw::set_current(raw::primary(0));
        for (number, name, code) in [
            (2, "CUDA_ERROR_OUT_OF_MEMORY", ErrorCode::OutOfMemory),
            (1, "CUDA_ERROR_INVALID_VALUE", ErrorCode::InvalidValue),
            (400, "CUDA_ERROR_INVALID_HANDLE", ErrorCode::InvalidHandle),
            (801, "CUDA_ERROR_NOT_SUPPORTED", ErrorCode::NotSupported),
            (999, "CUDA_ERROR_UNKNOWN", ErrorCode::Other(999)),
        ] {
            let (device, failed) = (&open_at(0), Vec::new());
            let mut faulty = Faulty { device, library, ordinal: 0, number, name, code, failed };
            faulty.virtual_memory();
            faulty.memory();
            faulty.streams();
            // The peer's, what `moves` lets fail, and the host's memory, which has a function with
            // the device's.
            faulty.failed.extend([Call::EnablePeerAccess, Call::CreateOnHost]);
            faulty.failed.extend([Call::Hold, Call::Copy, Call::FinishCopies]);
            let missed = Call::ALL.into_iter().find(|call| !faulty.failed.contains(call));
            assert_eq!(missed, None);
            assert_eq!(raw::current(), raw::primary(0));
        }
    });
}

#[test]
fn a_refused_peer_is_named_and_let_in_when_asked_for_again() {
    crate::scenario!(2, "", || {
        let Some(library) = &simulated() else { return };
        let (device, failed) = (&open_at(0), Vec::new());
        let (number, name, code) = (2, "CUDA_ERROR_OUT_OF_MEMORY", ErrorCode::OutOfMemory);
        // It is the peer that gets access, so its context makes the call.
        let mut faulty = Faulty { device, library, ordinal: 1, number, name, code, failed };
        faulty.twice(Call::EnablePeerAccess, (0, 0), |device| device.enable_peer_access(1));
        assert_eq!(raw::current(), 0);
    });
}

/// Once is a moment's shortage. For ever, while plain memory is there: the host has no large pages
/// left.
#[test]
fn a_device_that_has_plain_memory_and_no_handle_has_no_virtual_memory() {
    crate::scenario!(1, "", || {
        let Some(library) = &simulated() else { return };
        raw::set_current(raw::primary(0));
        // SAFETY: the functions have this signature.
        let fail = unsafe { library.get::<Fail>("simcuda_fail") }.unwrap();
        // SAFETY: reads the name.
        let fail = |name: &CStr, is_for_ever| unsafe { fail(0, name.as_ptr(), 1, is_for_ever, 2) };
        assert_eq!(fail(c"cuMemCreate", 0), 0);
        let info = open_at(0).info();
        assert!(info.has_virtual_memory && !info.makes_no_handle);
        assert_eq!(fail(c"cuMemCreate", 1), 0);
        let device = open_at(0);
        assert!(!device.info().has_virtual_memory && device.info().makes_no_handle);
        device.free(device.malloc(8 << 20).unwrap()).unwrap();
        // A device that is full.
        assert_eq!(fail(c"cuMemAlloc_v2", 1), 0);
        assert!(open_at(0).info().has_virtual_memory);
    });
}

/// Under WSL memory for network cards can be made and mapped, and access to it is refused; where
/// virtual memory is refused altogether, there is plain memory.
#[test]
fn what_the_driver_promises_is_tried_to_the_end() {
    crate::scenario!(1, "", || {
        let Some(library) = &simulated() else { return };
        for function in [c"cuMemSetAccess", c"cuMemMap", c"cuMemCreate", c"cuMemUnmap"] {
            raw::set_current(raw::primary(0));
            // SAFETY: the function has this signature.
            let fail = unsafe { library.get::<Fail>("simcuda_fail") }.unwrap();
            // SAFETY: reads the name.
            assert_eq!(unsafe { fail(0, function.as_ptr(), 1, 0, 999) }, 0, "{function:?}");
            let device = open_at(0);
            assert!(!device.info().has_virtual_memory, "{function:?}");
            let address = device.malloc(8 << 20).unwrap();
            device.free(address).unwrap();
            assert!(open_at(0).info().has_virtual_memory);
        }
    });
}
