//! What is done when the simulated device reports a violation: it is said on stderr, with the
//! function, its arguments and, where the process ends for it, how the program came there.
//!
//! The device reports with its lock held; the text waits in the thread until the call is over.

use drystone_sim::Violation;
use parking_lot::Mutex;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt::{Debug, Write};
use std::thread::{self, ThreadId};

thread_local! {
    static IS_PENDING: Cell<bool> = const { Cell::new(false) };
}

/// Texts of violations by calls that have not returned yet.
static PENDING: Mutex<Vec<Pending>> = Mutex::new(Vec::new());

struct Pending {
    thread: ThreadId,
    text: String,
    /// Whether a real driver would end the process here, strict or not.
    is_fatal: bool,
}

/// Most texts that wait for one call.
const PENDING_MAX: usize = 100;

/// The device's hook.
pub(crate) fn hook(violation: &Violation) {
    let is_fatal = matches!(violation, Violation::StaleHandle { .. });
    add(violation.to_string(), is_fatal);
}

/// Has a violation of the calling thread reported when its call is over.
pub(crate) fn note(text: &str) {
    add(text.to_owned(), false);
}

/// Ends the process when the calling thread's call is over.
pub(crate) fn note_fatal(text: &str) {
    add(text.to_owned(), true);
}

fn add(text: String, is_fatal: bool) {
    let mut pending = PENDING.lock();
    if pending.len() < PENDING_MAX {
        pending.push(Pending { thread: thread::current().id(), text, is_fatal });
    }
    IS_PENDING.set(true);
}

/// Whether the calling thread has something to report.
pub(crate) fn is_pending() -> bool {
    IS_PENDING.get()
}

/// Says what the calling thread's call has broken; ends the process where it is to be strict.
pub(crate) fn report(function: &str, status: i32, arguments: &dyn Fn() -> String, is_strict: bool) {
    IS_PENDING.set(false);
    let own = thread::current().id();
    let mut texts = Vec::new();
    PENDING.lock().retain_mut(|one| {
        let is_own = one.thread == own;
        if is_own {
            texts.push((std::mem::take(&mut one.text), one.is_fatal));
        }
        !is_own
    });
    for (text, is_fatal) in texts {
        if is_strict || is_fatal {
            let arguments = arguments();
            eprintln!("simcuda: violation: {text}\n  by {function}({arguments}) = {status}");
            eprintln!("{}", Backtrace::force_capture());
            std::process::abort();
        }
        if is_first_of_its_kind(function, &text) {
            let arguments = arguments();
            eprintln!(
                "simcuda: violation: {text}\n  by {function}({arguments}) = {status}; further \
                 ones of this kind are only counted"
            );
        }
    }
}

/// A kind is a function and a text without its figures.
fn is_first_of_its_kind(function: &str, text: &str) -> bool {
    static SEEN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let words = text.split(' ').filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    let kind = words.fold(function.to_owned(), |kind, word| kind + " " + word);
    SEEN.lock().get_or_insert_default().insert(kind)
}

/// `name = value, ...`
pub(crate) fn show_arguments(arguments: &[(&str, &dyn Debug)]) -> String {
    let mut shown = String::new();
    for (index, (name, value)) in arguments.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(shown, "{comma}{name} = {value:?}");
    }
    shown
}
