//! A process that answers others under a name: which memory they mean, and the descriptors of it.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::thread;
use std::time::Duration;

use drystone::Exported;
use drystone::driver::Descriptor;
use drystone_process::barrier::barrier;
use drystone_process::descriptors::{connect, listen, prepare, receive, send};

/// How long one side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question: both words of the secret, and which memory.
pub(super) type Question = [u64; 3];

/// Memory as it comes: where it begins in that of the handles, and these with their sizes.
pub(super) struct Received {
    pub(super) offset_bytes: u64,
    pub(super) handles: Vec<(Descriptor, u64)>,
}

/// Answers under a name from now on, in a thread that sleeps until it is asked.
pub(super) fn serve(name: u64, answer: fn(Question) -> Option<Exported>) -> io::Result<()> {
    let listener = listen(name)?;
    let run = move || {
        for asked in listener.incoming() {
            match asked {
                // Who asks and goes away has nothing to be told.
                Ok(stream) => drop(barrier(Ok(()), || reply(stream, answer))),
                // No descriptor is left, say: not at once again.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    };
    without_signals(|| thread::Builder::new().name("drystone-ipc".to_owned()).spawn(run)).map(drop)
}

/// The program's signals are for its own threads; a new thread has its maker's mask.
fn without_signals<T>(begin: impl FnOnce() -> T) -> T {
    // SAFETY: a plain C struct; filled below.
    let mut all: libc::sigset_t = unsafe { mem::zeroed() };
    let mut before = all;
    // SAFETY: fills the set.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: reads one set, writes the other.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
    let begun = begin();
    // SAFETY: the mask of before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    begun
}

fn reply(mut stream: UnixStream, answer: fn(Question) -> Option<Exported>) -> io::Result<()> {
    prepare(&stream, PATIENCE)?;
    let question = [read(&mut stream)?, read(&mut stream)?, read(&mut stream)?];
    let exported = answer(question);
    let handles = exported.as_ref().map_or(&[][..], |exported| &exported.handles);
    write(&mut stream, handles.len() as u64)?;
    write(&mut stream, exported.as_ref().map_or(0, |exported| exported.offset_bytes))?;
    handles.iter().try_for_each(|one| send(&stream, one.bytes, one.descriptor.as_raw_fd()))
}

/// Asks the process that answers under a name. `None` where it gives nothing.
pub(super) fn ask(name: u64, question: Question) -> io::Result<Option<Received>> {
    let mut stream = connect(name, PATIENCE)?;
    question.into_iter().try_for_each(|word| write(&mut stream, word))?;
    let count = read(&mut stream)?;
    let offset_bytes = read(&mut stream)?;
    let handles = (0..count)
        .map(|_| receive(&stream)?.ok_or(ErrorKind::UnexpectedEof.into()))
        .collect::<io::Result<Vec<_>>>()?;
    Ok((count > 0).then_some(Received { offset_bytes, handles }))
}

fn read(stream: &mut UnixStream) -> io::Result<u64> {
    let mut word = [0; 8];
    stream.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}

fn write(stream: &mut UnixStream, word: u64) -> io::Result<()> {
    stream.write_all(&word.to_le_bytes())
}
