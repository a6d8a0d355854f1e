//! `DRYSTONE_RECORD`: what a program asks of the library, written to a file as a trace.
//!
//! Keeps: a recording goes on until its device is reset or the process exits, and is whole then;
//! each has a file of its own. Children that it forks write nothing of it.

use std::ffi::{OsString, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

use drystone::{Allocator, Recording};
use drystone_cuda::{ProcessState, process_state};
use parking_lot::Mutex;

use crate::status::{Failure, Status};

/// Names the file: of device 0, and with `-N` before its ending of device N, followed by `-resetM`
/// once that was reset M times. `%p` in it becomes the process's id.
const VARIABLE: &str = "DRYSTONE_RECORD";

/// All that began, by their device; `None` from the device's reset on.
static RECORDINGS: Mutex<Vec<(u32, Option<Recording>)>> = Mutex::new(Vec::new());

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

extern "C" fn flush() {
    // What a child has inherited is its parent's to write, and locks may be nobody's.
    if process_state() == ProcessState::Forked {
        return;
    }
    // A thread that is recording just now is not waited for.
    let Some(recordings) = RECORDINGS.try_lock() else { return };
    for recording in recordings.iter().filter_map(|(_, recording)| recording.as_ref()) {
        // Nobody is left to tell.
        let _ = recording.flush();
    }
}

/// Records a device that has just been opened, if the environment says so.
pub(crate) fn begin(allocator: &Allocator, ordinal: u32) -> Result<(), Failure> {
    static AT_EXIT: Once = Once::new();
    let Some(file) = std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) else {
        return Ok(());
    };
    let mut recordings = RECORDINGS.lock();
    // One for each time that the device was opened.
    let resets = recordings.iter().filter(|(of, _)| *of == ordinal).count();
    let path = path_of(Path::new(&file), ordinal, resets);
    let recording = allocator.record(&path).map_err(|error| {
        let message = format!("{VARIABLE}: cannot write {}: {error}", path.display());
        Failure::new(Status::FileError, message)
    })?;
    recordings.push((ordinal, Some(recording)));
    drop(recordings);
    AT_EXIT.call_once(|| {
        // SAFETY: the library is never unloaded, and the function calls nothing that panics. Where
        // it cannot be registered, the end of the trace is lost.
        let _ = unsafe { atexit(flush) };
    });
    Ok(())
}

/// The device was reset: what is recorded so far is all there is of it.
pub(crate) fn end(ordinal: u32) {
    let mut recordings = RECORDINGS.lock();
    for (_, recording) in recordings.iter_mut().filter(|(of, _)| *of == ordinal) {
        // Nobody is there to tell.
        let _ = recording.take().map(Recording::end);
    }
}

/// The file of a device that was reset so many times.
fn path_of(file: &Path, ordinal: u32, resets: usize) -> PathBuf {
    let mut suffix = String::new();
    if ordinal > 0 {
        suffix += &format!("-{ordinal}");
    }
    if resets > 0 {
        suffix += &format!("-reset{resets}");
    }
    let text = file.as_os_str().as_bytes();
    let process = std::process::id().to_string();
    let text = &*match text.windows(2).position(|two| two == b"%p") {
        Some(at) => [&text[..at], process.as_bytes(), &text[at + 2..]].concat(),
        None => text.to_vec(),
    };
    let name = text.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let ending = text[name..].iter().position(|&byte| byte == b'.');
    let (stem, ending) = text.split_at(ending.map_or(text.len(), |at| name + at));
    OsString::from_vec([stem, suffix.as_bytes(), ending].concat()).into()
}

#[cfg(test)]
mod tests {
    use super::path_of;
    use std::path::Path;

    #[test]
    fn each_device_has_a_file() {
        let path = |file: &str, ordinal, resets| path_of(Path::new(file), ordinal, resets);
        assert_eq!(path("/a/b.csv", 0, 0), Path::new("/a/b.csv"));
        assert_eq!(path("/a/b.x.csv", 3, 0), Path::new("/a/b-3.x.csv"));
        assert_eq!(path("b", 1, 0), Path::new("b-1"));
        assert_eq!(path("/a/b.csv", 0, 1), Path::new("/a/b-reset1.csv"));
        assert_eq!(path("/a/b.csv", 1, 2), Path::new("/a/b-1-reset2.csv"));
        let process = std::process::id();
        assert_eq!(path("/a/%p/b.csv", 1, 0), Path::new(&format!("/a/{process}/b-1.csv")));
    }
}
