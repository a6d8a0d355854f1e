//! Devices by ordinal, each opened at its first use, and the options they are opened with.
//!
//! Invariant: a device that was in the table is never dropped, closed or moved: who found it may
//! use it until the process ends.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Once};

use drystone::driver::{Driver, Stream};
use drystone::{Options, seen};
use parking_lot::Mutex;

use crate::device::Device;
use crate::neighbours::Table;
use crate::status::{Failure, Status};
use crate::{record, registering, report, state};

/// Devices beyond are refused. Far more than a machine has, and as many as `u64` has bits.
const DEVICES_MAX: usize = 64;

static DEVICES: [AtomicPtr<Device>; DEVICES_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; DEVICES_MAX];

/// Whether any device was ever in use.
static IS_ANY: AtomicBool = AtomicBool::new(false);

/// Whether every stream that may use memory is seen, or is brought by a request or a use.
static ALL_KNOWN: AtomicBool = AtomicBool::new(false);

/// Options that the program gave, and how its devices are opened. Its lock is held while a device
/// is opened, so that options are either given before or refused.
static GIVEN: Mutex<Given> =
    Mutex::new(Given { all: None, each: Vec::new(), open_driver: open_cuda });

struct Given {
    all: Option<Options>,
    each: Vec<(usize, Options)>,
    open_driver: OpenDriver,
}

/// A device that is in use already.
#[inline]
pub fn find(ordinal: c_int) -> Option<&'static Device> {
    // A negative ordinal becomes one that is too large.
    DEVICES.get(ordinal as usize).and_then(load)
}

#[inline]
fn load(entry: &'static AtomicPtr<Device>) -> Option<&'static Device> {
    // SAFETY: null, or a leaked device, published with all it consists of.
    unsafe { entry.load(Ordering::Acquire).as_ref() }
}

/// Whether any device was ever in use. Asked by calls that have nothing else to do.
#[inline]
pub fn is_any() -> bool {
    IS_ANY.load(Ordering::Relaxed)
}

/// All devices in use.
pub fn in_use() -> impl Iterator<Item = &'static Device> {
    DEVICES.iter().filter_map(load)
}

/// From now on every stream that may use memory is seen, or brought: of all devices.
pub fn know_all_streams() {
    ALL_KNOWN.store(true, Ordering::Relaxed);
    in_use().for_each(|device| device.allocator.know_all_streams(others));
}

/// Tells of the streams that were seen, and of those that other devices know: each can copy from
/// and to the memory of each. Not where somebody registers memory by its address.
fn others(ordinal: u32, run: &mut dyn FnMut(Vec<Stream>)) {
    /// One thread at a time has what several devices know.
    static ASKS: Mutex<()> = Mutex::new(());
    if !registering::is_loaded() {
        seen::others(&mut |streams| {
            let _asks = ASKS.lock();
            add_known(0, ordinal, streams, run);
        });
    }
}

/// Adds what each device from one on knows, but for one, and calls back with all.
fn add_known(from: u32, but: u32, streams: Vec<Stream>, run: &mut dyn FnMut(Vec<Stream>)) {
    match in_use().find(|device| device.ordinal >= from && device.ordinal != but) {
        None => run(streams),
        Some(device) => device.allocator.with_streams(&mut |mut known| {
            known.extend_from_slice(&streams);
            add_known(device.ordinal + 1, but, known, run);
        }),
    }
}

/// A device, opened if it is not in use yet.
///
/// # Errors
/// There is no such device, it cannot be opened, or the process is exiting or forked.
#[inline]
pub fn get(ordinal: c_int) -> Result<&'static Device, Failure> {
    match find(ordinal) {
        Some(device) => Ok(device),
        None => open(ordinal),
    }
}

/// Opens a device's memory to another, if that can reach it. Where it cannot the driver copies
/// through the host. The allocator asks, not the driver alone: a capture may be under way.
fn open_to(device: &Device, peer: &Device) {
    let _ = device.allocator.enable_peer_access(peer.ordinal);
}

/// Opens a device, and the memory of every two that are in use then to one another.
#[cold]
fn open(ordinal: c_int) -> Result<&'static Device, Failure> {
    state::check()?;
    let index = position(ordinal)?;
    // A child forked from here on is told by the driver's layer, which is asked before this lock.
    let given = GIVEN.lock();
    if let Some(device) = find(ordinal) {
        return Ok(device);
    }
    let own = given.each.iter().find(|(of, _)| *of == index).map(|&(_, options)| options);
    let options = match own.or(given.all) {
        Some(options) => options,
        None => Options::from_env()?,
    };
    // Cannot truncate: the position is below the table's length.
    let driver = (given.open_driver)(index as u32, &options)?;
    if driver.info().makes_no_handle && options.backend.is_none() {
        report::note(&format!(
            "drystone: device {index} makes no handle of the virtual memory that it promises, \
             so it serves plain memory, whose gaps stay: on a host that lacks large pages free \
             them and start again, or say backend:malloc\n"
        ));
    }
    let device = Box::new(Device::new(index as u32, driver, &options)?);
    record::begin(&device.allocator, device.ordinal)?;
    // Programs copy between devices silently to an allocator of this kind, and mapped memory
    // is closed to all that it was not opened to. So this comes before anybody finds the device.
    for other in in_use() {
        open_to(&device, other);
        open_to(other, &device);
    }
    if ALL_KNOWN.load(Ordering::Relaxed) {
        device.allocator.know_all_streams(others);
    }
    if device.neighbours.is_some() {
        static AT_EXIT: Once = Once::new();
        // SAFETY: the library is never unloaded, and the function calls nothing that panics.
        AT_EXIT.call_once(|| _ = unsafe { libc::atexit(leave) });
    }
    let device = Box::leak(device);
    IS_ANY.store(true, Ordering::Relaxed);
    DEVICES[index].store(ptr::from_mut(device), Ordering::Release);
    Ok(device)
}

/// The process exits: its devices' neighbours are told.
extern "C" fn leave() {
    in_use().filter_map(|device| device.neighbours).for_each(Table::leave);
}

/// Takes a device out whose memory and streams the driver has taken back. It is opened anew when it
/// is used again.
pub fn forget(ordinal: c_int) {
    if let Some(entry) = DEVICES.get(ordinal as usize) {
        if let Some(neighbours) = find(ordinal).and_then(|device| device.neighbours) {
            neighbours.leave();
        }
        entry.store(ptr::null_mut(), Ordering::Release);
        // Cannot truncate: the position is below the table's length.
        record::end(ordinal as u32);
    }
}

/// Opens the driver of a device.
pub type OpenDriver = fn(u32, &Options) -> Result<Arc<dyn Driver>, Failure>;

/// From now on devices are opened by another function: simulated ones, for tests.
pub fn open_by(open_driver: OpenDriver) {
    GIVEN.lock().open_driver = open_driver;
}

fn open_cuda(ordinal: u32, options: &Options) -> Result<Arc<dyn Driver>, Failure> {
    let options = drystone_cuda::CudaOptions { is_shareable: options.is_shareable };
    Ok(Arc::new(drystone_cuda::CudaDevice::open(ordinal, &options)?))
}

fn position(ordinal: c_int) -> Result<usize, Failure> {
    let index = usize::try_from(ordinal).ok().filter(|&index| index < DEVICES_MAX);
    index.ok_or_else(|| {
        let message = format!("there is no device {ordinal}");
        Failure::new(Status::InvalidDevice, message)
    })
}

/// Ok if an ordinal may be a device's.
///
/// # Errors
/// It is negative, or too large.
pub fn check(ordinal: c_int) -> Result<(), Failure> {
    position(ordinal).map(|_| ())
}

/// Settles the options of a device, or with -1 of all devices that were given none of their own;
/// `None` takes those of the environment again.
///
/// # Errors
/// There is no such device, or it is in use already.
pub fn configure(ordinal: c_int, options: Option<Options>) -> Result<(), Failure> {
    let mut given = GIVEN.lock();
    if ordinal == ALL {
        if let Some(device) = in_use().next() {
            return Err(already_in_use(device));
        }
        given.all = options;
        return Ok(());
    }
    let index = position(ordinal)?;
    if let Some(device) = find(ordinal) {
        return Err(already_in_use(device));
    }
    given.each.retain(|&(of, _)| of != index);
    given.each.extend(options.map(|options| (index, options)));
    Ok(())
}

/// Stands for all devices.
pub const ALL: c_int = -1;

fn already_in_use(device: &Device) -> Failure {
    let message = format!(
        "device {} is in use already: options are given before its first allocation",
        device.ordinal
    );
    Failure::new(Status::AlreadyInUse, message)
}
