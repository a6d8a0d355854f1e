//! Memory for other processes by the driver's old calls (`cuIpcGetMemHandle` and so on), which
//! refuse mapped memory. For ours a [`Token`] of our own stands; who opens it, with Drystone in the
//! process, gets the descriptors of the handles behind the memory, and maps these.
//!
//! Invariants: nothing is held for a token, neither memory nor addresses. A token is good for as
//! long as the same handles are behind the same addresses; then the memory stays where it is
//! (I13). What is opened keeps the physical memory until it is closed or its process ends.

pub(crate) mod token;
mod wire;

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use drystone::driver::Descriptor;
use drystone::{Exported, Imported, ShareError};
use drystone_process::by_address::ByAddress;
use drystone_process::descriptors::random;
use drystone_process::device::Device;
use drystone_process::report::report;
use drystone_process::status::{Failure, Status as Kind};
use drystone_process::{self as process, registry};
use parking_lot::Mutex;

use self::token::{Named, Token};
use crate::context;
use crate::driver::{self, Driver, OUT_OF_MEMORY, Status};

/// `CUDA_ERROR_INVALID_CONTEXT`: what the driver says of a handle where it was made.
const INVALID_CONTEXT: Status = 201;
/// `CUDA_ERROR_MAP_FAILED`.
const MAP_FAILED: Status = 205;
/// `CUDA_ERROR_INVALID_HANDLE`.
const INVALID_HANDLE: Status = 400;

/// The device, and the addresses of what is one allocation of mapped memory to other processes.
pub(crate) fn allocation_around(address: u64) -> Option<(&'static Device, Range<u64>)> {
    process::check().ok()?;
    registry::in_use().find_map(|device| {
        device.allocator.allocation_around(address).map(|addresses| (device, addresses))
    })
}

/// Memory that was given.
struct Given {
    number: u64,
    ordinal: u32,
    addresses: Range<u64>,
    handles: Vec<Weak<Descriptor>>,
}

impl Given {
    /// Whether the same handles are there still.
    fn is(&self, exported: &Exported) -> bool {
        let same = |(one, other): (&Weak<Descriptor>, &Arc<Descriptor>)| {
            std::ptr::eq(one.as_ptr(), Arc::as_ptr(other))
        };
        let handles = || exported.handles.iter().map(|handle| &handle.descriptor);
        self.handles.len() == exported.handles.len() && self.handles.iter().zip(handles()).all(same)
    }
}

static GIVEN: Mutex<Vec<Given>> = Mutex::new(Vec::new());

/// How this process is known to those whom it gave memory.
#[derive(Clone, Copy)]
struct Own {
    socket: u64,
    secret: [u64; 2],
}

/// `None` where it cannot answer.
fn own() -> Option<Own> {
    static OWN: OnceLock<Option<Own>> = OnceLock::new();
    *OWN.get_or_init(|| {
        let (socket, secret) = (random()?, [random()?, random()?]);
        wire::serve(socket, answer).ok()?;
        Some(Own { socket, secret })
    })
}

thread_local! {
    /// The address that the thread asked about last, where it was told that the allocation around
    /// it begins, and whether that is a part of what is live there.
    static TOLD: Cell<(u64, u64, bool)> = const { Cell::new((0, 0, false)) };
}

/// The thread asked about an address, and is told where the allocation around it begins: by one
/// call that is a block, by another a mapping. From there it counts in what others open.
pub(crate) fn tell(address: u64, start: u64, is_part: bool) {
    TOLD.set((address, start, is_part));
}

/// Whether the thread was told of a part of a block there. Who takes the part's handle for the
/// block's maps too little of it: NCCL, which registers what a captured collective uses, and does
/// without where it gets no handle.
pub(crate) fn is_part(address: u64) -> bool {
    let (asked, told, is_part) = TOLD.get();
    is_part && (address == asked || address == told)
}

/// A token for the memory of ours that an address lies in. `None`: it is for the driver to answer.
pub(crate) fn give(driver: &Driver, address: u64) -> Option<Token> {
    if driver::hands_on() {
        return None;
    }
    let (asked, told, _) = TOLD.get();
    let is_told = address == asked || address == told;
    let of = if is_told { asked } else { address };
    let (device, mut addresses) = allocation_around(of)?;
    let is_block = is_told && told == addresses.start;
    if !driver::is_serving() && !is_block {
        let mut bytes = 0;
        // SAFETY: writes two numbers.
        let ask = |to| unsafe { (driver.cuMemGetAddressRange_v2)(to, &raw mut bytes, of) };
        let mapping = driver::answer(0, ask)?;
        if is_told && told == mapping {
            addresses.start = mapping;
        } else if address != addresses.start {
            // Who asked elsewhere goes from the mapping.
            addresses.start = mapping.max(addresses.start);
        }
    }
    let exported = device.allocator.export_range(addresses.clone());
    let exported = exported.inspect_err(|error| said("cuIpcGetMemHandle", error)).ok()?;
    let Own { socket, secret } = own()?;
    let bytes = addresses.end - addresses.start;
    let number = number_of(device.ordinal, addresses, &exported);
    Some(Token::of(Named { process: std::process::id(), socket, secret, number, bytes }))
}

/// What no other memory has that is known to others, in this process: as the driver has it for
/// allocations, whose numbers are small.
pub(crate) fn buffer_number(driver: &Driver, address: u64) -> Option<u64> {
    Some(1 << 63 | give(driver, address)?.named()?.number)
}

/// The same memory has the same number: callers know tokens again by their bytes.
fn number_of(ordinal: u32, addresses: Range<u64>, exported: &Exported) -> u64 {
    let mut given = GIVEN.lock();
    given.retain(|one| one.handles.iter().all(|handle| handle.strong_count() > 0));
    let is_same =
        |one: &&Given| (one.ordinal, &one.addresses) == (ordinal, &addresses) && one.is(exported);
    if let Some(known) = given.iter().find(is_same) {
        return known.number;
    }
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let handles = exported.handles.iter().map(|one| Arc::downgrade(&one.descriptor)).collect();
    given.push(Given { number, ordinal, addresses, handles });
    number
}

/// What is given to somebody who has a token.
fn answer([first, second, number]: wire::Question) -> Option<Exported> {
    process::check().ok()?;
    if own()?.secret != [first, second] {
        return None;
    }
    let (ordinal, addresses) = {
        let given = GIVEN.lock();
        let one = given.iter().find(|one| one.number == number)?;
        (one.ordinal, one.addresses.clone())
    };
    let device = registry::find(ordinal.cast_signed())?;
    let exported = device.allocator.export_range(addresses).ok()?;
    let given = GIVEN.lock();
    given.iter().any(|one| one.number == number && one.is(&exported)).then_some(exported)
}

/// Memory of another process, by where the program has it.
static OPENED: Mutex<ByAddress<Opened>> = Mutex::new(ByAddress::EMPTY);

struct Opened {
    named: Named,
    /// How often it was opened, and not closed.
    uses: usize,
    imported: Imported,
}

/// The opened memory that an address lies in.
pub(crate) fn opened_around(address: u64) -> Option<Range<u64>> {
    process::check().ok()?;
    let opened = OPENED.lock();
    let (start, one) = opened.last_up_to(address)?;
    Some(*start..start + one.named.bytes).filter(|all| all.contains(&address))
}

/// Opens memory by its token, for the calling thread's device.
pub(crate) fn open(driver: &Driver, named: Named) -> Result<u64, Status> {
    if process::check().is_err() || named.process == std::process::id() {
        return Err(INVALID_CONTEXT);
    }
    let mut opened = OPENED.lock();
    if let Some((start, one)) = opened.iter_mut().find(|(_, one)| one.named == named) {
        one.uses += 1;
        return Ok(*start);
    }
    let refused = |failure: &Failure, status| {
        report("cuIpcOpenMemHandle", failure);
        status
    };
    let ordinal = context::current_ordinal(driver).ok_or(INVALID_CONTEXT)?;
    let device = registry::get(ordinal).map_err(|failure| refused(&failure, INVALID_CONTEXT))?;
    let Named { process, socket, secret: [first, second], number, .. } = named;
    let received = match wire::ask(socket, [first, second, number]) {
        Ok(Some(received)) => received,
        found => {
            let reason = found.err().map_or_else(
                || "it has given that memory back, or captures a graph".to_owned(),
                |error| error.to_string(),
            );
            let message = format!("process {process} does not give its memory: {reason}");
            return Err(refused(&Failure::new(Kind::InvalidValue, message), INVALID_HANDLE));
        }
    };
    let handles: Vec<_> = received.handles.iter().map(|(one, bytes)| (one, *bytes)).collect();
    let imported = device.allocator.import(&handles).map_err(|error| {
        let failure = Failure::from(error);
        let status = if failure.status == Kind::OutOfMemory { OUT_OF_MEMORY } else { MAP_FAILED };
        refused(&failure, status)
    })?;
    let start = imported.address() + received.offset_bytes;
    opened.insert(start, Opened { named, uses: 1, imported });
    Ok(start)
}

/// Closes what was opened at an address; whether it was.
pub(crate) fn close(address: u64) -> bool {
    if process::check().is_err() {
        return false;
    }
    let mut opened = OPENED.lock();
    let Some(one) = opened.get_mut(address) else { return false };
    one.uses -= 1;
    let gone = if one.uses == 0 { opened.remove(address) } else { None };
    // Which waits for the device.
    drop(opened);
    drop(gone.map(|gone| gone.imported));
    true
}

/// Says why the driver's answer, which is a refusal, is not ours.
fn said(function: &str, error: &ShareError) {
    if !matches!(error, ShareError::DriversOwn | ShareError::Plain { .. }) {
        report(function, &Failure::from(error.clone()));
    }
}
