//! How descriptors go from one process to another of the same user: over a socket with a name
//! without a file, which ends with its process.
//!
//! Invariant: neither side tells anything to, or takes anything from, a process of another user.

use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use drystone::driver::Descriptor;

/// A number that nobody guesses; `None` where the system has none.
pub fn random() -> Option<u64> {
    let mut word = 0_u64;
    // SAFETY: there is room for as many bytes.
    let made = unsafe { libc::getrandom((&raw mut word).cast(), size_of_val(&word), 0) };
    (made == size_of_val(&word) as isize).then_some(word)
}

fn address(name: u64) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("drystone-{name:016x}"))
}

/// A socket that others connect to by its name.
///
/// # Errors
/// The system's.
pub fn listen(name: u64) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(name)?)
}

/// Connects to a process of the same user by the name of its socket. Neither side is waited for
/// longer than that at a time.
///
/// # Errors
/// There is none, it is another user's, or the system's.
pub fn connect(name: u64, patience: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(name)?)?;
    prepare(&stream, patience)?;
    Ok(stream)
}

/// Makes sure who is there, and that nothing is waited for without end.
///
/// # Errors
/// It is another user's process, or the system's.
pub fn prepare(stream: &UnixStream, patience: Duration) -> io::Result<()> {
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
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
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

/// Sends a number with a descriptor.
///
/// # Errors
/// The system's.
pub fn send(stream: &UnixStream, bytes: u64, descriptor: RawFd) -> io::Result<()> {
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

/// Receives a number with a descriptor; `None` at the end.
///
/// # Errors
/// There is no descriptor beside it, or the system's.
pub fn receive(stream: &UnixStream) -> io::Result<Option<(Descriptor, u64)>> {
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
        Some(descriptor) if count == 8 => Ok(Some((descriptor, u64::from_le_bytes(word)))),
        None if count == 0 => Ok(None),
        _ if count < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::new(ErrorKind::UnexpectedEof, "a descriptor is missing")),
    }
}
