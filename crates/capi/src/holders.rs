//! Who holds a device's memory, by the program's word, for the error that says that none is left.
//!
//! A thread of its own asks the program, and the one that failed waits for it, holding no lock of
//! Python's. Invariant: it waits for a bounded time. So it neither hangs where whoever has Python's
//! lock waits for it, nor does what is asked run in its place: a signal's exception reaches the
//! program, and no tracer or compiler of its frames sees others.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::barrier::barrier;

/// More than a few lines.
const ANSWER_BYTES: usize = 4096;
/// How long a refusal waits for an answer: longer than one takes with millions of objects on a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(5);
/// After an answer that did not come in time, how long nobody is asked: so that waiting takes a
/// twentieth of the program's time at most.
const REST: Duration = Duration::from_secs(100);

type Describe = extern "C" fn(c_int, usize, *mut c_char, usize) -> usize;

struct Question {
    describe: Describe,
    device: c_int,
    bytes: u64,
}

struct Asking {
    describe: Option<Describe>,
    /// The question that was asked last.
    question: u64,
    /// It has no answer yet, be anybody waiting for it or not.
    is_under_way: bool,
    answer: String,
    rests_until: Option<Instant>,
}

static ASKING: Mutex<Asking> = Mutex::new(Asking {
    describe: None,
    question: 0,
    is_under_way: false,
    answer: String::new(),
    rests_until: None,
});
static ANSWERED: Condvar = Condvar::new();

/// Sets who is asked what holds memory each time PyTorch is told that a device has none left; null
/// for nobody, which waits a while for the answer under way. It is given the device, the size asked
/// for, and room for a text, and returns how many bytes of it it has written, without a NUL. It is
/// asked by a thread of its own, once at a time, with no lock held. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn drystone_torch_describe_with(
    describe: Option<extern "C" fn(c_int, usize, *mut c_char, usize) -> usize>,
) {
    barrier((), || {
        let mut asking = ASKING.lock();
        asking.describe = describe;
        if describe.is_none() {
            let deadline = Instant::now() + PATIENCE;
            ANSWERED.wait_while_until(&mut asking, |asking| asking.is_under_way, deadline);
        }
    });
}

/// Who holds the device's memory; empty if nobody is there to tell, or not in time.
pub(crate) fn told(device: c_int, bytes: u64) -> String {
    let Some((describe, question)) = begin() else { return String::new() };
    let Some(thread) = start(Question { describe, device, bytes }) else {
        ASKING.lock().is_under_way = false;
        return String::new();
    };
    let _released = PythonLock::release();
    let mut asking = ASKING.lock();
    let is_mine = |asking: &mut Asking| asking.question == question && asking.is_under_way;
    let waited = ANSWERED.wait_while_until(&mut asking, is_mine, Instant::now() + PATIENCE);
    if waited.timed_out() {
        asking.rests_until = Some(Instant::now() + REST);
    }
    let is_answered = asking.question == question && !asking.is_under_way;
    let answer = if is_answered { mem::take(&mut asking.answer) } else { String::new() };
    drop(asking);
    end(thread, is_answered);
    answer
}

/// Whom to ask, and the number of the question, if anybody may be asked now.
fn begin() -> Option<(Describe, u64)> {
    let mut asking = ASKING.lock();
    let describe = asking.describe?;
    let rests = asking.rests_until.is_some_and(|until| Instant::now() < until);
    if asking.is_under_way || rests {
        return None;
    }
    asking.is_under_way = true;
    asking.question += 1;
    Some((describe, asking.question))
}

/// The thread that asks it now. Rust's own threads would make the library a fiftieth larger.
fn start(question: Question) -> Option<libc::pthread_t> {
    let given = Box::into_raw(Box::new(question));
    let mut thread: libc::pthread_t = 0;
    // SAFETY: the question is the thread's own, if there is one.
    let status =
        unsafe { libc::pthread_create(&raw mut thread, ptr::null(), answer, given.cast()) };
    if status != 0 {
        // SAFETY: there is none, so it is still this one's.
        drop(unsafe { Box::from_raw(given) });
        return None;
    }
    Some(thread)
}

/// Waits for a thread that has answered, so that the next one finds its memory free; leaves another
/// to itself.
fn end(thread: libc::pthread_t, is_answered: bool) {
    if is_answered {
        // SAFETY: begun by `start`, and ended once.
        unsafe { libc::pthread_join(thread, ptr::null_mut()) };
    } else {
        // SAFETY: as above.
        unsafe { libc::pthread_detach(thread) };
    }
}

extern "C" fn answer(given: *mut c_void) -> *mut c_void {
    // SAFETY: made for this thread by `start`.
    let Question { describe, device, bytes } = *unsafe { Box::from_raw(given.cast::<Question>()) };
    let mut room = vec![0_u8; ANSWER_BYTES];
    let written = describe(device, bytes as usize, room.as_mut_ptr().cast(), room.len());
    room.truncate(written.min(ANSWER_BYTES));
    let mut asking = ASKING.lock();
    asking.answer = String::from_utf8_lossy(&room).trim().to_owned();
    asking.is_under_way = false;
    ANSWERED.notify_all();
    ptr::null_mut()
}

/// Python's lock, which this thread had and has let go.
struct PythonLock {
    thread: *mut c_void,
    take_back: unsafe extern "C" fn(*mut c_void),
}

impl PythonLock {
    /// None if this thread does not have it, or there is no Python.
    fn release() -> Option<Self> {
        let find = |name: &'static CStr| {
            // SAFETY: a look for a name among what is loaded.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let (has, let_go) = (find(c"PyGILState_Check")?, find(c"PyEval_SaveThread")?);
        let take_back = find(c"PyEval_RestoreThread")?;
        // SAFETY: Python's function of that name, which has this type in every version.
        let has: unsafe extern "C" fn() -> c_int = unsafe { mem::transmute(has) };
        // SAFETY: as above.
        let let_go: unsafe extern "C" fn() -> *mut c_void = unsafe { mem::transmute(let_go) };
        // SAFETY: as above.
        let take_back: unsafe extern "C" fn(*mut c_void) = unsafe { mem::transmute(take_back) };
        // SAFETY: may be called by any thread.
        if unsafe { has() } == 0 {
            return None;
        }
        // SAFETY: this thread has the lock, and calls nothing of Python's until it has it again.
        Some(Self { thread: unsafe { let_go() }, take_back })
    }
}

impl Drop for PythonLock {
    fn drop(&mut self) {
        // SAFETY: what letting go gave, given back once by the same thread.
        unsafe { (self.take_back)(self.thread) }
    }
}
