//! How descriptors go from one process to another of the same user: over a socket with a name
//! without a file, which ends with its process.
//!
//! Invariant: neither side tells anything to, or takes anything from, a process of another user.

use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::ptr;
use std::thread;
use std::time::Duration;

use drystone::Exported;
use drystone::driver::Descriptor;
use drystone_process::barrier::barrier;

/// How long one side waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// A question: both words of the secret, and which memory.
pub(super) type Question = [u64; 3];

/// Memory as it comes: where it begins in that of the handles, and these with their sizes.
pub(super) struct Received {
    pub(super) offset_bytes: u64,
    pub(super) handles: Vec<(Descriptor, u64)>,
}

fn address(name: u64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("drystone-ipc-{name:016x}"))
}

/// Answers under a name from now on, in a thread that sleeps until it is asked.
pub(super) fn serve(name: u64, answer: fn(Question) -> Option<Exported>) -> io::Result<()> {
    let listener = UnixListener::bind_addr(&address(name)?)?;
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
    prepare(&stream)?;
    let question = [read(&mut stream)?, read(&mut stream)?, read(&mut stream)?];
    let exported = answer(question);
    let handles = exported.as_ref().map_or(&[][..], |exported| &exported.handles);
    write(&mut stream, handles.len() as u64)?;
    write(&mut stream, exported.as_ref().map_or(0, |exported| exported.offset_bytes))?;
    handles.iter().try_for_each(|one| send(&stream, one.bytes, one.descriptor.as_raw_fd()))
}

/// Asks the process that answers under a name. `None` where it gives nothing.
pub(super) fn ask(name: u64, question: Question) -> io::Result<Option<Received>> {
    let mut stream = UnixStream::connect_addr(&address(name)?)?;
    prepare(&stream)?;
    question.into_iter().try_for_each(|word| write(&mut stream, word))?;
    let count = read(&mut stream)?;
    let offset_bytes = read(&mut stream)?;
    let handles = (0..count).map(|_| receive(&stream)).collect::<io::Result<Vec<_>>>()?;
    Ok((count > 0).then_some(Received { offset_bytes, handles }))
}

/// Makes sure who is there, and that nothing is waited for without end.
fn prepare(stream: &UnixStream) -> io::Result<()> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut room = size_of_val(&peer) as libc::socklen_t;
    let (socket, to) = (stream.as_raw_fd(), (&raw mut peer).cast());
    // SAFETY: there is room for the answer.
    let told =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut room) };
    // SAFETY: asks for a number.
    if told != 0 || peer.uid != unsafe { libc::geteuid() } {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "it is another user's process"));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn read(stream: &mut UnixStream) -> io::Result<u64> {
    let mut word = [0; 8];
    stream.read_exact(&mut word)?;
    Ok(u64::from_le_bytes(word))
}

fn write(stream: &mut UnixStream, word: u64) -> io::Result<()> {
    stream.write_all(&word.to_le_bytes())
}

/// Room for the head and the number of one descriptor, aligned as the head is.
type Control = [u64; 4];

/// Calls a function with a message of one word, which may have a descriptor beside it.
fn with_message<T>(word: &mut [u8; 8], call: impl FnOnce(&mut libc::msghdr) -> T) -> T {
    let mut part = libc::iovec { iov_base: word.as_mut_ptr().cast(), iov_len: word.len() };
    let mut control: Control = [0; 4];
    // SAFETY: a plain C struct, for which zeroes are nothing.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: computes a size.
    let bytes = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) };
    debug_assert!(bytes as usize <= size_of::<Control>());
    message.msg_controllen = bytes as _;
    call(&mut message)
}

fn send(stream: &UnixStream, bytes: u64, descriptor: RawFd) -> io::Result<()> {
    let sent = with_message(&mut bytes.to_le_bytes(), |message| {
        // SAFETY: the message has room for one head.
        let head = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: the head is in the message's own room.
        let head = unsafe { &mut *head };
        (head.cmsg_level, head.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
        // SAFETY: computes a size.
        head.cmsg_len = unsafe { libc::CMSG_LEN(size_of::<RawFd>() as u32) } as _;
        // SAFETY: computes an address.
        let to = unsafe { libc::CMSG_DATA(head) }.cast::<RawFd>();
        // SAFETY: there is room for one number behind the head.
        unsafe { to.write_unaligned(descriptor) };
        // SAFETY: a whole message, whose parts live until the call ends.
        unsafe { libc::sendmsg(stream.as_raw_fd(), message, libc::MSG_NOSIGNAL) }
    });
    if sent == 8 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn receive(stream: &UnixStream) -> io::Result<(Descriptor, u64)> {
    let mut word = [0; 8];
    let (count, number) = with_message(&mut word, |message| {
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_WAITALL;
        // SAFETY: a whole message, whose parts live until the call ends.
        let count = unsafe { libc::recvmsg(stream.as_raw_fd(), message, flags) };
        // SAFETY: as the system has filled it.
        let head = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: null, or a head in the message's own room.
        let is_one = unsafe { head.as_ref() }.is_some_and(|head| {
            (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS)
        });
        // SAFETY: computes an address.
        let from = || unsafe { libc::CMSG_DATA(head) }.cast::<RawFd>();
        // SAFETY: a number is behind such a head.
        let number = is_one.then(|| unsafe { from().read_unaligned() });
        (count, number)
    });
    // SAFETY: the system has just made it, for this process.
    let descriptor = number.map(|number| unsafe { OwnedFd::from_raw_fd(number) });
    match descriptor {
        Some(descriptor) if count == 8 => Ok((descriptor, u64::from_le_bytes(word))),
        _ if count < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::new(ErrorKind::UnexpectedEof, "a descriptor is missing")),
    }
}
