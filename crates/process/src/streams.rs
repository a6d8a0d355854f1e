//! From a stream's handle to its key.
//!
//! A handle is not an identity: after a destroy the driver hands the same value out again (B2, B6),
//! and the per-thread default stream has one value in every thread (B4). So the driver is asked for
//! the identity at each use. The default stream, which is never destroyed, needs no question, nor
//! does one that stays until it is retired. Each thread remembers the keys of those it met last, by
//! identity or, of such a stream, by its handle.
//!
//! Keeps: that a stream stays is said of its key. Another that has its place in a table, its handle
//! or both does not stay for that.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use drystone::StreamId;
use drystone::driver::{Stream, StreamUid};
use parking_lot::Mutex;

use crate::device::{Device, is_default};
use crate::status::{Failure, Status};

/// How many streams a thread remembers; those it meets beyond cost a lock and a look-up.
const REMEMBERED: usize = 8;

/// A stream that the thread met: device, identity, key.
type Met = Cell<Option<(u32, StreamUid, StreamId)>>;

/// A stream that stays: device, handle, key.
type Staying = Cell<Option<(u32, u64, StreamId)>>;

// Without destructors, so that they serve until the thread's very end.
thread_local! {
    /// By identity.
    static MET: [Met; REMEMBERED] = const { [const { Cell::new(None) }; REMEMBERED] };
    /// By handle.
    static STAYING: [Staying; REMEMBERED] = const { [const { Cell::new(None) }; REMEMBERED] };
}

/// Where a thread remembers a stream by its handle.
#[inline]
fn place_of(handle: u64) -> usize {
    // The product's highest bits depend on all of a handle's.
    (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % REMEMBERED
}

/// Whose a stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// PyTorch's own: it lives as long as the process.
    Torch,
    /// The program's, who may destroy it at any time.
    Program,
    /// Nobody can tell.
    Unknown,
}

/// Tells whose a stream is, of a device and by its handle.
pub type TellOwner = fn(u32, u64) -> Owner;

static TELL_OWNER: Mutex<Option<TellOwner>> = Mutex::new(None);

/// From now on it is asked whose a stream is that was not met before.
pub fn ask(tell: TellOwner) {
    *TELL_OWNER.lock() = Some(tell);
}

/// Whether streams live as long as the process, so that any may be asked at any time.
static STREAMS_STAY: AtomicBool = AtomicBool::new(false);

/// Says of all streams to come that they live as long as the process.
pub fn all_stay() {
    STREAMS_STAY.store(true, Ordering::Relaxed);
}

/// Whose a stream is to be taken for.
fn owner_of(device: u32, handle: u64) -> Owner {
    match STREAMS_STAY.load(Ordering::Relaxed) {
        true => Owner::Torch,
        false => {
            // Asked without the lock.
            let tell = *TELL_OWNER.lock();
            tell.map_or(Owner::Program, |tell| tell(device, handle))
        }
    }
}

impl Device {
    /// The key of a stream.
    ///
    /// # Errors
    /// The driver does not know the stream.
    #[inline]
    pub fn stream(&self, handle: u64) -> Result<StreamId, Failure> {
        if is_default(handle) {
            return Ok(self.default_stream);
        }
        let known = STAYING.try_with(|known| known[place_of(handle)].get()).ok().flatten();
        if let Some((ordinal, same, id)) = known
            && (ordinal, same) == (self.ordinal, handle)
        {
            return Ok(id);
        }
        self.asked_stream(handle)
    }

    /// The key of the stream that has a handle now: the driver is asked who that is, also where a
    /// stream that stayed had the handle. For who sees streams end that other threads remember.
    ///
    /// # Errors
    /// The driver does not know the stream.
    pub fn asked_stream(&self, handle: u64) -> Result<StreamId, Failure> {
        if is_default(handle) {
            return Ok(self.default_stream);
        }
        let uid = self.allocator.stream_uid(Stream(handle))?;
        let met = MET.try_with(|met| met[uid.0 as usize % REMEMBERED].get()).ok().flatten();
        match met {
            Some((ordinal, same, id)) if same == uid && ordinal == self.ordinal => Ok(id),
            _ => self.add_stream(handle),
        }
    }

    /// Does something on a stream. One that another thread has retired since this one met it is a
    /// new one from now on.
    ///
    /// # Errors
    /// As the act's, and the driver does not know the stream.
    pub fn on_stream<T>(
        &self,
        handle: u64,
        act: impl Fn(StreamId) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match act(self.stream(handle)?) {
            Err(failure) if failure.status == Status::UnknownStream => {
                act(self.add_stream(handle)?)
            }
            done => done,
        }
    }

    /// The key of a stream that the thread has not met yet, or whose key is no more.
    #[cold]
    pub(crate) fn add_stream(&self, handle: u64) -> Result<StreamId, Failure> {
        let stream = Stream(handle);
        // Who resets a device makes its streams anew.
        self.allocator.check_context()?;
        let uid = self.allocator.stream_uid(stream)?;
        let owner = owner_of(self.ordinal, handle);
        let id = match owner {
            Owner::Torch => self.allocator.add_stream(stream)?,
            Owner::Program | Owner::Unknown => self.allocator.add_passing_stream(stream)?,
        };
        self.note(stream, id, owner == Owner::Torch);
        if owner != Owner::Unknown {
            self.meet(uid, id);
        }
        Ok(id)
    }

    /// Notes a stream that the driver may be asked about until it is retired.
    ///
    /// # Errors
    /// The driver does not know the stream.
    pub fn keep_stream(&self, handle: u64) -> Result<(), Failure> {
        if !is_default(handle) {
            let stream = Stream(handle);
            let uid = self.allocator.stream_uid(stream)?;
            let id = self.allocator.add_stream(stream)?;
            self.note(stream, id, true);
            self.meet(uid, id);
        }
        Ok(())
    }

    /// This thread remembers the stream. Without the memory the next use asks again.
    fn meet(&self, uid: StreamUid, id: StreamId) {
        let _ = MET.try_with(|met| {
            met[uid.0 as usize % REMEMBERED].set(Some((self.ordinal, uid, id)));
        });
    }

    /// Notes a stream's handle, and whether it stays. What any thread has said of that counts.
    fn note(&self, stream: Stream, id: StreamId, stays: bool) {
        let mut handles = self.handles.lock();
        if handles.len() <= id.index() {
            handles.resize(id.index() + 1, (0, None));
        }
        let entry = &mut handles[id.index()];
        let stays = stays || entry.1 == Some(id);
        *entry = (stream.0, stays.then_some(id));
        drop(handles);
        // That value is a stream of each thread's.
        let stays = stays && stream != Stream::PER_THREAD;
        let known = stays.then_some((self.ordinal, stream.0, id));
        let _ = STAYING.try_with(|all| all[place_of(stream.0)].set(known));
    }

    /// Says that a stream is about to be destroyed.
    ///
    /// # Errors
    /// It is the default stream, or the driver does not know it.
    pub fn retire_stream(&self, handle: u64) -> Result<(), Failure> {
        if is_default(handle) {
            let message = "the default stream is never destroyed, so it cannot be retired";
            return Err(Failure::new(Status::InvalidValue, message));
        }
        let id = self.stream(handle)?;
        if let Some(entry) = self.handles.lock().get_mut(id.index()) {
            entry.1 = None;
        }
        let _ = STAYING.try_with(|all| all[place_of(handle)].set(None));
        match self.allocator.retire_stream(id) {
            Ok(()) => Ok(()),
            // Retired by another thread. Used again since, it has a new key.
            Err(_) => Ok(self.allocator.retire_stream(self.add_stream(handle)?)?),
        }
    }
}
