//! The exported functions over simulated devices, called as C calls them.
//!
//! The devices of the registry are the process's, so every test has ordinals of its own: 0 and 1
//! `fuzz`, 10 to 29 one each here.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::thread;

use drystone::driver::CaptureMode;
use drystone_sim::{Harsh, SimConfig, SimDevice};
use parking_lot::{Mutex, RwLock};

use crate::control::*;
use crate::growable::*;
use crate::memory::*;
use crate::plugin::*;
use crate::statistics::*;
use crate::status::{Failure, Status};
use crate::streams::CUstream_st;
use crate::{about, last_error};

mod fuzz;
mod layout;
mod pins;
mod share;
mod tags;
mod uses;

/// Two devices that reach one another's memory, and no others.
const CONNECTED: u32 = 30;
/// Ordinals from here on are no devices.
const NO_DEVICE: u32 = 32;
const MIB: usize = 1 << 20;

/// Taken shared by tests that count what devices hold, and whole by whoever calls
/// `drystone_reset`, which gives back the free memory of every device of the process.
static HELD: RwLock<()> = RwLock::new(());

static SIMULATED: Mutex<BTreeMap<u32, SimDevice>> = Mutex::new(BTreeMap::new());

/// The simulated device behind an ordinal.
pub(crate) fn simulated(ordinal: u32) -> Result<SimDevice, Failure> {
    if ordinal >= NO_DEVICE {
        return Err(Failure::new(Status::InvalidDevice, format!("no device {ordinal}")));
    }
    let new = || {
        SimDevice::new(SimConfig {
            ordinal,
            total_bytes: 1 << 30,
            address_space_bytes: 1 << 40,
            first_address: u64::from(ordinal + 1) << 40,
            peers: if ordinal >= CONNECTED { vec![ordinal ^ 1] } else { Vec::new() },
            oracle: true,
            strict: true,
            // `fuzz` passes any handle.
            harsh: Harsh { stale_handles_end: ordinal > 1, ..Harsh::default() },
            ..SimConfig::default()
        })
    };
    Ok(SIMULATED.lock().entry(ordinal).or_insert_with(new).clone())
}

/// The process's devices, all of them simulated.
pub(crate) mod registry {
    use std::ffi::c_int;
    use std::sync::Arc;

    use drystone_process::device::Device;
    pub(crate) use drystone_process::registry::{
        ALL, check, configure, find, in_use, know_all_streams,
    };

    use crate::status::Failure;

    pub(crate) fn get(ordinal: c_int) -> Result<&'static Device, Failure> {
        drystone_process::registry::open_by(|ordinal, _| {
            super::simulated(ordinal).map(|device| Arc::new(device) as _)
        });
        drystone_process::registry::get(ordinal)
    }
}

fn stream(handle: u64) -> *mut CUstream_st {
    handle as usize as *mut CUstream_st
}

const DEFAULT: *mut CUstream_st = ptr::null_mut();

fn allocate(size: usize, device: c_int, stream: *mut CUstream_st) -> (Status, *mut c_void) {
    let mut out = ptr::dangling_mut();
    // SAFETY: the pointer is that of a local.
    let status = unsafe { drystone_allocate(&raw mut out, size, device, stream) };
    (status, out)
}

fn message() -> String {
    // SAFETY: never null, and valid until this thread's next failure.
    let text = unsafe { CStr::from_ptr(about::drystone_last_error_message()) };
    text.to_str().unwrap().to_owned()
}

fn stats(device: c_int) -> CStats {
    let mut stats = CStats { struct_size: size_of::<CStats>(), ..CStats::default() };
    // SAFETY: the struct is as large as it says.
    assert_eq!(unsafe { drystone_get_stats(device, &raw mut stats) }, Status::Ok);
    stats
}

#[test]
fn b39_size_zero_is_null_any_number_of_times() {
    for _ in 0..3 {
        assert_eq!(allocate(0, 10, DEFAULT), (Status::Ok, ptr::null_mut()));
        assert!(drystone_malloc(0, 10, DEFAULT).is_null());
    }
    assert_eq!(drystone_deallocate(ptr::null_mut()), Status::Ok);
    drystone_free(ptr::null_mut(), 0, 10, DEFAULT);
    assert_eq!(last_error::status(), Status::Ok);
}

#[test]
fn b64_a_free_with_another_stream_gives_the_block_back_to_its_own() {
    let other = stream(simulated(11).unwrap().create_stream().0);
    let block = drystone_malloc(4 << 20, 11, DEFAULT);
    drystone_free(block, 4 << 20, 11, other);
    // Nobody waited, so the other stream gets other memory, and its own gets it back.
    assert_eq!(drystone_malloc(4 << 20, 11, DEFAULT), block);
    assert_eq!(drystone_deallocate_checked(block, 4 << 20, 11, other), Status::WrongStream);
    assert!(message().contains("was allocated on stream 0x0, not 0x"), "{}", message());
    assert_eq!(drystone_deallocate_checked(block, 4 << 20, 11, stream(1)), Status::Ok);
}

#[test]
fn b2_a_recycled_handle_is_another_stream() {
    let device = simulated(12).unwrap();
    let first = device.create_stream();
    let block = drystone_malloc(4 << 20, 12, stream(first.0));
    device.launch(first, 1_000_000).unwrap();
    let is_over_ns = device.work_end_ns();
    drystone_free(block, 4 << 20, 12, stream(first.0));
    device.destroy_stream(first).unwrap();
    let second = device.create_stream();
    assert_eq!(first, second, "the handle was to come back");
    // The second does not wait for the first's kernel, so it gets the memory when that is over.
    let again = drystone_malloc(4 << 20, 12, stream(second.0));
    assert!(again != block || device.now_ns() >= is_over_ns);
}

#[test]
fn b6_a_block_outlives_its_stream() {
    let device = simulated(13).unwrap();
    let own = device.create_stream();
    let block = drystone_malloc(3 << 20, 13, stream(own.0));
    assert_eq!(drystone_retire_stream(13, stream(own.0)), Status::Ok);
    device.destroy_stream(own).unwrap();
    assert_eq!(drystone_deallocate_checked(block, 3 << 20, 13, stream(own.0)), Status::Ok);
    assert_eq!(drystone_retire_stream(13, DEFAULT), Status::InvalidValue);
    assert_eq!(drystone_check(13), Status::Ok);
}

#[test]
fn a_stream_retired_by_another_thread_is_a_new_one_from_then_on() {
    let device = simulated(14).unwrap();
    let own = device.create_stream().0;
    let before = allocate(MIB, 14, stream(own));
    assert_eq!(before.0, Status::Ok);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(drystone_retire_stream(14, stream(own)), Status::Ok));
    });
    assert_eq!(allocate(MIB, 14, stream(own)).0, Status::Ok);
    let (_, block) = allocate(MIB, 14, DEFAULT);
    let mut cache = ptr::null_mut();
    for again in 0..3 {
        assert_eq!(drystone_retire_stream(14, stream(own)), Status::Ok);
        let done = match again {
            0 => drystone_record_use(block, stream(own)),
            // SAFETY: the pointer is that of a local.
            1 => unsafe { drystone_growable_reserve(&raw mut cache, MIB, 14, stream(own)) },
            _ => drystone_growable_record_use(cache, stream(own)),
        };
        assert_eq!(done, Status::Ok, "{}", message());
    }
    assert_eq!(drystone_growable_free(cache), Status::Ok);
    assert_eq!(drystone_retire_stream(14, stream(own)), Status::Ok);
}

#[test]
fn p3_what_is_wrong_with_a_free_is_said_and_changes_nothing() {
    let block = drystone_malloc(5000, 15, DEFAULT);
    assert!(!drystone_malloc(5000, 16, DEFAULT).is_null());
    let inside = block.wrapping_byte_add(512);
    let foreign = ptr::dangling_mut::<u64>().cast::<c_void>();
    let before = stats(15).allocated_bytes.current;
    for (ptr, size, device, status, text) in [
        (foreign, 8, 15, Status::UnknownPointer, "0x8 is not an address of this allocator"),
        (inside, 5000, 15, Status::InteriorPointer, "lies inside the block of 5120 bytes at 0x"),
        (block, 4999, 15, Status::WrongSize, "was allocated with 5000 bytes, not 4999"),
        (block, -1, 15, Status::WrongSize, "was allocated with 5000 bytes, not -1"),
        (block, 5000, 16, Status::WrongDevice, "belongs to device 15, not 16"),
        (block, 5000, 99, Status::WrongDevice, "belongs to device 15, not 99"),
        (block, 5000, -1, Status::WrongDevice, "belongs to device 15, not -1"),
    ] {
        about::drystone_clear_error();
        drystone_free(ptr, size, device, DEFAULT);
        assert_eq!(last_error::status(), status, "{size} {device}");
        assert!(message().contains(text), "{}", message());
        let checked = drystone_deallocate_checked(ptr, size as usize, device, DEFAULT);
        assert_eq!(checked, status, "{size} {device}");
        assert_eq!(stats(15).allocated_bytes.current, before);
    }
    about::drystone_clear_error();
    drystone_free(block, 5000, 15, DEFAULT);
    assert_eq!(last_error::status(), Status::Ok);
    drystone_free(block, 5000, 15, DEFAULT);
    assert_eq!(last_error::status(), Status::AlreadyFree);
    assert_eq!(drystone_check(15), Status::Ok);
}

#[test]
fn p8_a_private_pool_takes_the_requests_its_filter_says_yes_to() {
    /// What libstdc++ keeps of a `std::function` whose function is a plain pointer.
    #[repr(C)]
    struct Function([usize; 2], Option<Manager>, Option<Invoker>);
    type Manager = extern "C" fn(*mut [usize; 2], *const [usize; 2], i32) -> bool;
    type Invoker = extern "C" fn(*const [usize; 2], *const u64) -> bool;
    static ALIVE: Mutex<i32> = Mutex::new(0);
    extern "C" fn manage(to: *mut [usize; 2], from: *const [usize; 2], operation: i32) -> bool {
        if operation == 2 {
            // SAFETY: as libstdc++ does: the source is valid, the target writable.
            let storage = unsafe { from.read() };
            // SAFETY: as above.
            unsafe { to.write(storage) };
            *ALIVE.lock() += 1;
        } else if operation == 3 {
            *ALIVE.lock() -= 1;
        }
        false
    }
    extern "C" fn is_wanted(storage: *const [usize; 2], stream: *const u64) -> bool {
        // SAFETY: the arguments of an invoker are valid.
        let (storage, stream) = (unsafe { storage.read() }, unsafe { stream.read() });
        storage[0] as u64 == stream
    }
    let wanted = simulated(17).unwrap().create_stream().0;
    let begin = |filter: *mut Function| {
        // SAFETY: the filter is null or laid out as libstdc++ does.
        unsafe { drystone_begin_allocate_to_pool(17, 7, 9, filter.cast()) };
    };
    let filter = &mut Function([wanted as usize, 0], Some(manage), Some(is_wanted));
    begin(filter);
    filter.0 = std::hint::black_box([0, 0]); // The caller's function is gone.
    let segment_of = |block: *mut c_void| {
        // SAFETY: no size is asked for.
        unsafe { drystone_base_allocation(block, ptr::null_mut()) }
    };
    let inside = drystone_malloc(3 << 20, 17, stream(wanted));
    let outside = drystone_malloc(3 << 20, 17, DEFAULT);
    assert_ne!(segment_of(inside), segment_of(outside));
    assert_eq!(*ALIVE.lock(), 1);
    drystone_end_allocate_to_pool(17, 7, 9);
    assert_eq!(*ALIVE.lock(), 0, "a filter is destroyed once, and as often as it was copied");
    let after = drystone_malloc(3 << 20, 17, stream(wanted));
    assert_ne!(segment_of(after), segment_of(inside));

    // An empty function, and none: every stream.
    let mut empty = Function([0; 2], None, None);
    for filter in [&raw mut empty, ptr::null_mut()] {
        begin(filter);
        let block = drystone_malloc(3 << 20, 17, DEFAULT);
        assert_ne!(segment_of(block), segment_of(outside));
        drystone_end_allocate_to_pool(17, 7, 9);
    }
    about::drystone_clear_error();
    drystone_end_allocate_to_pool(17, 7, 9);
    assert_eq!(last_error::status(), Status::UnknownPool, "b23: one end too many");
}

/// PyTorch tells a plug-in nothing of peers.
#[test]
fn memory_of_devices_in_use_is_open_to_one_another() {
    let earlier = drystone_malloc(4 << 20, 30, DEFAULT);
    let other = drystone_malloc(4 << 20, 31, DEFAULT);
    let later = drystone_malloc(64 << 20, 30, DEFAULT);
    for (address, own, peer) in [(earlier, 30, 31), (other, 31, 30), (later, 30, 31)] {
        let device = simulated(own).unwrap();
        assert!(device.is_reachable_by(peer, address as u64, 4 << 20), "{own} by {peer}");
    }
}

#[test]
fn b26_uses_of_a_pool_balance() {
    let _held = HELD.read();
    assert_eq!(drystone_pool_create(18, 0, 0), Status::InvalidValue);
    assert_eq!(drystone_pool_create(18, 1, 0), Status::Ok);
    assert_eq!(drystone_pool_create(18, 1, 0), Status::Ok);
    let from_pool = |out: *mut *mut c_void| {
        // SAFETY: the pointer is that of a local.
        unsafe { drystone_allocate_from_pool(out, MIB, 18, DEFAULT, 1, 0) }
    };
    let mut block = ptr::null_mut();
    assert_eq!(drystone_pool_destroy(18, 1, 0), Status::Ok);
    assert_eq!(from_pool(&raw mut block), Status::Ok);
    assert_eq!(drystone_pool_destroy(18, 1, 0), Status::Ok);
    let mut late = ptr::dangling_mut();
    assert_eq!(from_pool(&raw mut late), Status::UnknownPool);
    assert!(late.is_null());
    assert_eq!(drystone_pool_destroy(18, 1, 0), Status::UnknownPool);
    assert_eq!(drystone_deallocate(block), Status::Ok);
    let mut given_back = 0;
    // SAFETY: the pointer is that of a local.
    assert_eq!(unsafe { drystone_trim(18, &raw mut given_back) }, Status::Ok);
    assert_eq!(given_back, 2 * MIB);
}

#[test]
fn b22_nothing_is_given_back_while_a_stream_is_captured() {
    let _all = HELD.write();
    let device = simulated(19).unwrap();
    let own = device.create_stream();
    drystone_free(drystone_malloc(4 << 20, 19, DEFAULT), 4 << 20, 19, DEFAULT);
    drystone_free(drystone_malloc(4 << 20, 19, stream(own.0)), 4 << 20, 19, DEFAULT);
    let reset = || {
        about::drystone_clear_error();
        drystone_reset();
        last_error::status()
    };
    assert_eq!(drystone_pool_create(19, 7, 8), Status::Ok);
    assert_eq!(drystone_expect_capture(19, 7, 8), Status::Ok);
    device.begin_capture(own, CaptureMode::Global).unwrap();
    assert_eq!(reset(), Status::Capturing);
    let mut block = ptr::null_mut();
    // SAFETY: written to.
    let status =
        unsafe { drystone_allocate_from_pool(&raw mut block, 64 << 20, 19, stream(own.0), 7, 8) };
    assert_eq!((status, reset()), (Status::Ok, Status::Capturing));
    device.end_capture(own).unwrap();
    // It is over once its pool says so, and so is another once its stream comes again.
    assert_eq!(drystone_end_captures(19, 7, 8), Status::Ok);
    assert_eq!(reset(), Status::Ok);
    device.begin_capture(own, CaptureMode::Global).unwrap();
    assert!(!drystone_malloc(64 << 20, 19, stream(own.0)).is_null());
    device.end_capture(own).unwrap();
    assert_eq!(reset(), Status::Capturing);
    assert!(!drystone_malloc(1 << 20, 19, stream(own.0)).is_null());
    assert_eq!((reset(), device.violation_count()), (Status::Ok, 0));
}

#[test]
fn limits_refuse_with_figures_and_memory_comes_back() {
    let _held = HELD.read();
    drystone_set_memory_fraction(0.25, 20);
    let (status, out) = allocate(512 << 20, 20, DEFAULT);
    assert_eq!((status, out), (Status::OutOfMemory, ptr::null_mut()));
    assert!(message().contains("raise limit or limit_fraction"), "{}", message());
    for wrong in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        about::drystone_clear_error();
        drystone_set_memory_fraction(wrong, 20);
        assert_eq!(last_error::status(), Status::InvalidValue, "{wrong}");
    }
    assert_eq!(drystone_set_limit(20, usize::MAX), Status::Ok);
    let (status, block) = allocate(512 << 20, 20, DEFAULT);
    assert_eq!(status, Status::Ok);
    assert_eq!(drystone_deallocate(block), Status::Ok);
    let mut largest = 0;
    // SAFETY: the pointer is that of a local.
    assert_eq!(unsafe { drystone_largest_free(20, &raw mut largest) }, Status::Ok);
    assert_eq!(largest, 512 << 20);
}

#[test]
fn options_are_settled_by_the_first_use() {
    let configure = |device, text: &CStr| {
        // SAFETY: a C string.
        unsafe { drystone_configure(device, text.as_ptr()) }
    };
    assert_eq!(configure(21, c"sauce:vmm"), Status::BadOption);
    assert!(message().contains("unknown option `sauce`; valid options are"), "{}", message());
    assert_eq!(configure(21, c"limit:64MiB"), Status::Ok);
    assert_eq!(configure(-2, c""), Status::InvalidDevice);
    assert_eq!(configure(64, c""), Status::InvalidDevice);
    assert_eq!(allocate(100 << 20, 21, DEFAULT).0, Status::OutOfMemory);
    assert_eq!(configure(21, c"limit:1GiB"), Status::AlreadyInUse);
    assert!(message().contains("device 21 is in use already"), "{}", message());
    assert_eq!(configure(registry::ALL, c"limit:1GiB"), Status::AlreadyInUse);
}

#[test]
fn statistics_fit_older_and_newer_programs() {
    let _held = HELD.read();
    assert_eq!(drystone_devices_in_use() >> 22 & 1, 0);
    assert_eq!(allocate(700, 22, DEFAULT).0, Status::Ok);
    let all = stats(22);
    assert_eq!((all.requested_bytes.current, all.allocated_bytes.current), (700, 1024));
    assert_eq!((all.reserved_bytes.peak, all.device_bytes), (2 << 20, 1 << 30));
    assert_eq!(drystone_devices_in_use() >> 22 & 1, 1);
    // Reserve, create, map, open; and to be let into the memory of other tests' devices.
    assert!(all.driver_calls >= 4, "{}", all.driver_calls);
    assert_eq!(all.granule_remaps, 0);
    // Misaligned: written all the same.
    let mut odd = [0_u8; 1 + size_of::<usize>()];
    let place = odd[1..].as_mut_ptr().cast();
    // SAFETY: the bytes are there, if not aligned.
    assert_eq!(unsafe { drystone_largest_free(22, place) }, Status::Ok);
    assert_ne!(odd[1..], [0; size_of::<usize>()]);
    let mut older = CStats { struct_size: 8 + 24, ..CStats::default() };
    // SAFETY: the struct is larger than it says.
    assert_eq!(unsafe { drystone_get_stats(22, &raw mut older) }, Status::Ok);
    assert_eq!((older.struct_size, older.requested_bytes.current), (32, 700));
    assert_eq!(older.allocated_bytes.current, 0);
    older.struct_size = 7;
    // SAFETY: as above.
    assert_eq!(unsafe { drystone_get_stats(22, &raw mut older) }, Status::InvalidValue);

    let mut needed = 0;
    // SAFETY: no buffer, of no size.
    let status = unsafe { drystone_stats_json(22, ptr::null_mut(), 0, &raw mut needed) };
    assert_eq!(status, Status::Ok);
    let mut text = vec![0_u8; needed];
    let (out, none) = (text.as_mut_ptr().cast(), ptr::null_mut());
    // SAFETY: the buffer is one byte larger than said.
    let status = unsafe { drystone_stats_json(22, out, needed - 1, none) };
    assert_eq!((status, text[0]), (Status::BufferTooSmall, 0));
    // SAFETY: the buffer is as large as said.
    assert_eq!(unsafe { drystone_stats_json(22, out, needed, none) }, Status::Ok);
    let text = CStr::from_bytes_with_nul(&text).unwrap().to_str().unwrap();
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    assert_eq!(json["requested_bytes"]["current"], 700);
    assert_eq!(json["small"]["allocated_bytes"]["current"], 1024);
    assert_eq!(json["large"]["segments"]["total"], 0);
    assert_eq!(
        (&json["granule_remaps"], &json["requested_bytes"]["peak"]),
        (&0.into(), &700.into())
    );
    assert_eq!((all.with_room.growths, all.under_pressure.growths, all.device_looks), (1, 0, 1));
    assert_eq!((&json["with_room"]["growths"], &json["device_looks"]), (&1.into(), &1.into()));
}

#[test]
fn a_snapshot_names_streams_and_pools_as_the_program_does() {
    let own = simulated(23).unwrap().create_stream().0;
    assert_eq!(drystone_pool_create(23, 3, 4), Status::Ok);
    let mut block = ptr::null_mut();
    // SAFETY: the pointer is that of a local.
    let status =
        unsafe { drystone_allocate_from_pool(&raw mut block, 5 << 20, 23, stream(own), 3, 4) };
    assert_eq!(status, Status::Ok);
    let segments = crate::snapshot::of_devices().segments;
    let found = segments.iter().find(|s| s.address == block as u64).unwrap();
    assert_eq!((found.device, found.stream, found.allocated_bytes), (23, own, 5 << 20));
    assert_eq!(found.pool, Some(drystone_trace::snapshot::PoolId(3, 4)));
    // SAFETY: a C string.
    let status = unsafe { drystone_snapshot(c"/no/such/folder".as_ptr()) };
    assert_eq!(status, Status::FileError);
    // An open file, in whose folder nothing else can be made.
    let file = tempfile::tempfile().unwrap();
    let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a C string.
    assert_eq!(unsafe { drystone_snapshot(name.as_ptr()) }, Status::Ok);
    assert!(file.metadata().unwrap().len() > 0);
    // SAFETY: null is refused.
    assert_eq!(unsafe { drystone_snapshot(ptr::null()) }, Status::InvalidValue);
}

#[test]
fn errors_of_threads_are_their_own() {
    assert_eq!(allocate(1, 99, DEFAULT).0, Status::InvalidDevice);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(last_error::status(), Status::Ok));
    });
    assert_eq!(last_error::status(), Status::InvalidDevice);
}

#[test]
fn every_status_has_the_name_of_its_constant() {
    for number in 0..26 {
        let status = Status::of(number).unwrap();
        assert_eq!(status as c_int, number);
        let name = status.name().to_str().unwrap();
        let words = name.strip_prefix("DRYSTONE_STATUS_").unwrap().split('_');
        let capitalised = |w: &str| w[..1].to_owned() + &w[1..].to_lowercase();
        assert_eq!(words.map(capitalised).collect::<String>(), format!("{status:?}"));
    }
    // SAFETY: never null, valid forever.
    let name = |number| unsafe { CStr::from_ptr(about::drystone_status_name(number)) };
    assert_eq!(name(4), c"DRYSTONE_STATUS_OUT_OF_MEMORY");
    for number in [-1, 26, c_int::MIN, c_int::MAX] {
        assert_eq!(name(number), c"unknown status");
    }
}
