//! The thread that gives unused memory back to a host which is short of it: only for devices whose
//! memory is the host's. What nobody holds there, programs of the host cannot use either.
//!
//! Invariants: it takes no memory and waits for the device a tick at most, so nobody waits for it;
//! it ends with the process, and with its device.

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use drystone::driver::DriverError;
use drystone::{Allocator, Effort};

use crate::barrier::barrier;
use crate::{state, thread};

/// How often the host is looked at: a reader of files, or a program's weights, takes some GiB in a
/// second.
const TICK: Duration = Duration::from_millis(100);
/// Given back at once: more frees come in between.
const SLICE_BYTES: u64 = 1 << 30;
/// Unused memory goes back where the host has less than so many times its floor.
const FLOORS: u64 = 2;
/// What the kernel is asked to tell: some thread stood still for 100 ms of two seconds for lack of
/// memory. Programs without privileges may ask by whole two seconds alone (kernel documentation,
/// "PSI").
const TRIGGER: &[u8] = b"some 100000 2000000\0";

/// Starts to give an allocator's unused memory to the host, which is left so much.
pub(crate) fn serve(allocator: Allocator, floor_bytes: u64) {
    let giver = Box::new(Giver { allocator, floor_bytes });
    let given = Box::into_raw(giver).cast::<c_void>();
    // SAFETY: the thread gets what it casts back.
    if !unsafe { thread::start(run, given) } {
        // SAFETY: nobody has it. Growth leaves the host its floor all the same.
        drop(unsafe { Box::from_raw(given.cast::<Giver>()) });
    }
}

extern "C" fn run(given: *mut c_void) -> *mut c_void {
    // SAFETY: given by `serve`, to this thread alone.
    let giver = unsafe { Box::from_raw(given.cast::<Giver>()) };
    barrier((), || giver.run());
    // Dropped, it would make driver calls at the end of the process.
    std::mem::forget(giver);
    ptr::null_mut()
}

struct Giver {
    allocator: Allocator,
    floor_bytes: u64,
}

impl Giver {
    fn run(&self) {
        let bell = Bell::hung();
        loop {
            let is_pressed = bell.wait(TICK);
            if state::check().is_err() || self.look(is_pressed).is_err() {
                return;
            }
        }
    }

    /// Gives back what the host lacks, if anything.
    ///
    /// Errors: the device is gone for good.
    fn look(&self, is_pressed: bool) -> Result<(), DriverError> {
        let available_bytes = match self.allocator.memory_info() {
            Ok(memory) => memory.free_bytes,
            Err(error) if error.code.is_final() => return Err(error),
            Err(_) => return Ok(()),
        };
        let lacking_bytes = lacks(available_bytes, self.floor_bytes, is_pressed);
        if lacking_bytes > 0 && self.allocator.unused_bytes() > 0 {
            let given = self.allocator.give_back(lacking_bytes, Effort::Known, TICK);
            if given < lacking_bytes {
                self.allocator.give_back(lacking_bytes - given, Effort::Idle, TICK);
            }
        }
        Ok(())
    }
}

/// What is given back at once.
fn lacks(available_bytes: u64, floor_bytes: u64, is_pressed: bool) -> u64 {
    let lacking_bytes = (FLOORS * floor_bytes).saturating_sub(available_bytes);
    match is_pressed {
        true => lacking_bytes.max(SLICE_BYTES),
        false => lacking_bytes,
    }
}

/// Rings when the kernel finds that memory is short, if it tells this process.
struct Bell(Option<File>);

impl Bell {
    fn hung() -> Self {
        let root = std::env::var_os("DRYSTONE_HOST_ROOT").unwrap_or_else(|| "/".into());
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let opened = options.open(Path::new(&root).join("proc/pressure/memory")).ok();
        Self(opened.and_then(|mut file| file.write_all(TRIGGER).ok().map(|()| file)))
    }

    /// Waits so long, or until it rings.
    fn wait(&self, tick: Duration) -> bool {
        let Some(file) = &self.0 else {
            std::thread::sleep(tick);
            return false;
        };
        let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one entry, of a file that is open.
        unsafe { libc::poll(&raw mut poll, 1, tick.as_millis() as libc::c_int) };
        match poll.revents {
            0 => false,
            libc::POLLPRI => true,
            // It does not ring here.
            _ => {
                std::thread::sleep(tick);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drystone::Options;
    use drystone::driver::Stream;
    use drystone_sim::{Profile, SimConfig, SimDevice};

    use super::*;

    const GIB: u64 = 1 << 30;

    /// Cached memory goes back before the host is short; live memory stays.
    #[test]
    fn unused_memory_goes_back_as_the_host_needs_it() {
        let config = SimConfig { total_bytes: 64 * GIB, ..SimConfig::default() };
        let device = SimDevice::new(Profile::Unified.applied_to(config));
        let allocator = Allocator::new(Arc::new(device.clone()), &Options::default()).unwrap();
        let floor_bytes = allocator.host_floor_bytes();
        assert_eq!(floor_bytes, 4 * GIB);
        let giver = Giver { allocator: allocator.clone(), floor_bytes };
        let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
        let kept = allocator.allocate(stream, 10 * GIB).unwrap();
        let cached: Vec<_> = (0..30).map(|_| allocator.allocate(stream, GIB).unwrap()).collect();
        drop(cached);
        let held_bytes = || allocator.stats().all.reserved_bytes.current;
        let before_bytes = held_bytes();
        giver.look(false).unwrap();
        assert_eq!(held_bytes(), before_bytes, "the host has enough");
        giver.look(true).unwrap();
        let pressed_bytes = before_bytes - held_bytes();
        assert!((GIB..2 * GIB).contains(&pressed_bytes), "a slice: {pressed_bytes}");
        for programs in [20, 26, 32, 38, 44] {
            device.set_host_programs(programs * GIB);
            giver.look(false).unwrap();
            let available_bytes = allocator.memory_info().unwrap().free_bytes;
            assert!(available_bytes >= 2 * floor_bytes, "{available_bytes}");
        }
        device.set_host_programs(50 * GIB);
        giver.look(false).unwrap();
        assert_eq!(held_bytes(), 10 * GIB, "all that is unused");
        drop(kept);
        device.lose_context();
        assert!(giver.look(false).is_err(), "the device is gone, and so is who gives");
    }

    #[test]
    fn what_lacks_to_twice_the_floor_goes_back_and_a_slice_under_pressure() {
        assert_eq!(lacks(20 * GIB, 8 * GIB, false), 0);
        assert_eq!(lacks(13 * GIB, 8 * GIB, false), 3 * GIB);
        assert_eq!(lacks(20 * GIB, 8 * GIB, true), GIB);
        assert_eq!(lacks(10 * GIB, 8 * GIB, true), 6 * GIB);
        assert_eq!(lacks(0, 0, false), 0, "no floor");
    }
}
