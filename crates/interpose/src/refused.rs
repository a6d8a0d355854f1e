//! What becomes of a call that the driver has no memory for: it is tried again once Drystone has
//! given back what it holds unused, as the driver would take that from its own pools.
//!
//! Invariant: once for each time that something was given back; the answer of the last try is the
//! caller's. The caller may hold any lock of a library's: nothing is waited for longer than
//! [`PATIENCE`], and in a capture, at exit and in code that is called while memory moves nothing is
//! given back.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use drystone::Effort;
use drystone_process::barrier::barrier;
use drystone_process::{self as process, registry};

use crate::driver::{self, Place};
use crate::pools::Location;
use crate::{captures, context};

/// How long a call that was refused waits at most for requests of other threads, and for the device
/// to be idle. Longer than a step of training that is queued, as nobody knows before what of it is
/// used no more; shorter than any library waits for its peers.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is given back at first where nobody says how much a call takes: as much as a context, which
/// takes most. A module or a launch takes far less.
const UNTOLD_BYTES: u64 = 512 << 20;

/// What other processes are asked for then: a library's code, a graph.
const UNTOLD_OF_OTHERS_BYTES: u64 = 64 << 20;

/// An ordinal that no device has.
const NO_DEVICE: c_int = -1;

/// What a call takes of the driver's memory.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    bytes: u64,
    /// What of it other processes are asked for.
    of_others_bytes: u64,
    /// What is given back at most.
    most_bytes: u64,
    /// `None`: of the calling thread's context.
    ordinal: Option<c_int>,
}

impl Wanted {
    /// Memory of which nobody says how much it is: a kernel's code, a graph, a stream.
    pub(crate) const UNTOLD: Self = Self {
        bytes: UNTOLD_BYTES,
        of_others_bytes: UNTOLD_OF_OTHERS_BYTES,
        most_bytes: u64::MAX,
        ordinal: None,
    };

    /// The host's memory, of which the device holds page tables. The driver does not say whether
    /// the device or the host was short: a device keeps the rest, since a host that has no memory
    /// left is as likely.
    pub(crate) const OF_HOST: Self =
        Self { bytes: UNTOLD_OF_OTHERS_BYTES, most_bytes: UNTOLD_OF_OTHERS_BYTES, ..Self::UNTOLD };

    pub(crate) const fn bytes(bytes: usize) -> Self {
        Self { bytes: bytes as u64, of_others_bytes: bytes as u64, ..Self::UNTOLD }
    }

    pub(crate) const fn untold_of(ordinal: c_int) -> Self {
        Self { ordinal: Some(ordinal), ..Self::UNTOLD }
    }

    /// Physical memory, with the properties that `cuMemCreate` is told.
    ///
    /// # Safety
    /// They are readable, as the driver has read them.
    pub(crate) unsafe fn physical(bytes: usize, properties: Place) -> Self {
        /// Kinds of the memory and of its handle, and where it is.
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Physical([c_int; 2], Location);
        // SAFETY: by the caller's word.
        let Physical(_, location) = unsafe { properties.cast::<Physical>().read_unaligned() };
        // The host's is none that we hold.
        let ordinal = Some(location.device().unwrap_or(NO_DEVICE));
        Self { ordinal, ..Self::bytes(bytes) }
    }
}

/// The tries of one call: how often it was refused.
#[derive(Default)]
pub(crate) struct Tries {
    count: usize,
    /// When the patience of all of them ends.
    end: Option<Instant>,
    given_bytes: u64,
    /// Whether anything was given back in this round.
    gave: bool,
}

/// What is tried for it, one after the other; then other processes are asked.
const EFFORTS: [Effort; 3] = [Effort::Known, Effort::Idle, Effort::Moves];

/// How often all of it is tried, since other threads may be quicker with what was given back: two
/// that do nothing else are so once in fifty times.
const ROUNDS: usize = 4;

impl Tries {
    /// Whether memory was given back for the next try.
    #[cold]
    pub(crate) fn gives_back(&mut self, wanted: Wanted) -> bool {
        let end = *self.end.get_or_insert_with(|| Instant::now() + PATIENCE);
        while self.count < ROUNDS * (EFFORTS.len() + 1) {
            let at = self.count % (EFFORTS.len() + 1);
            let is_new_round = at == 0 && self.count > 0;
            if is_new_round && !std::mem::take(&mut self.gave) {
                break;
            }
            let effort = EFFORTS.get(at).copied();
            self.count += 1;
            let given_bytes = barrier(0, || give_back(self.left_of(wanted), effort, end));
            self.given_bytes += given_bytes;
            if given_bytes > 0 {
                self.gave = true;
                return true;
            }
        }
        false
    }

    /// The same, less what was given back before where that is all that is.
    const fn left_of(&self, wanted: Wanted) -> Wanted {
        let most_bytes = match wanted.most_bytes {
            u64::MAX => u64::MAX,
            most_bytes => most_bytes.saturating_sub(self.given_bytes),
        };
        Wanted { most_bytes, ..wanted }
    }
}

/// Gives unused memory of a device back, or has others do so; how many bytes.
fn give_back(wanted: Wanted, effort: Option<Effort>, end: Instant) -> u64 {
    if driver::hands_on() || process::check().is_err() || captures::any() {
        return 0;
    }
    let of_context = || context::current_ordinal(driver::loaded()?);
    let device = wanted.ordinal.or_else(of_context).and_then(registry::find);
    device.map_or(0, |device| {
        let Some(effort) = effort else {
            let bytes = wanted.of_others_bytes.min(wanted.most_bytes);
            return device.allocator.ask_neighbours(bytes);
        };
        let (allocated, reserved) = device.allocator.allocated_and_reserved_bytes();
        // The last effort is not spared.
        let bytes = if effort == Effort::Moves { u64::MAX } else { wanted.bytes.max(1) };
        let bytes = bytes.min(wanted.most_bytes);
        match bytes > 0 && reserved > allocated {
            true => device.allocator.give_back(
                bytes,
                effort,
                end.saturating_duration_since(Instant::now()),
            ),
            false => 0,
        }
    })
}
