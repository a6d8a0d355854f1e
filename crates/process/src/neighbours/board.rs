//! [`Board`]: the file in shared memory where the processes of a user meet that use one device, and
//! the slot that each has on it.
//!
//! Invariants: a file that is not this user's alone, or not of this layout, is left alone. Nothing
//! in it is a pointer, an index or a length to anybody: all are numbers that are taken for figures,
//! or not believed. A slot is its process's while that has the slot's byte of the file locked; what
//! one that was killed has left there is overwritten by the next.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use drystone::Neighbour;

use super::{futex, life};

/// Names the folder of boards, where containers share another one than `/dev/shm`. Empty: no board.
const VARIABLE: &str = "DRYSTONE_BOARD";
const FOLDER: &str = "/dev/shm";
/// Raised with every change of what is in a board: processes of several versions have a board each.
pub(super) const LAYOUT: u32 = 3;
/// What a board begins with.
const MAGIC: u64 = u64::from_be_bytes(*b"drystone") ^ LAYOUT as u64;
/// How many processes a board has room for: far more than share a device.
pub(super) const SLOTS: usize = 64;
/// How many milliseconds it is waited for others that join or leave: they take some microseconds.
const ALONE_TRIES: usize = 100;
/// How often a file is opened that another process removes at that moment.
const OPENED_MAX: usize = 64;

/// What is in the file.
#[repr(C)]
pub(super) struct Layout {
    magic: AtomicU64,
    _free: [u64; 15],
    slots: [Slot; SLOTS],
}

/// What one process says, in a cache line of its own or two.
#[repr(C, align(128))]
#[derive(Default)]
pub(super) struct Slot {
    /// Its number, and when it began.
    owner: AtomicU64,
    /// Where that number means anything.
    namespace: AtomicU64,
    name: [AtomicU64; 2],
    held_bytes: AtomicU64,
    unused_bytes: AtomicU64,
    /// When it got more memory last, in milliseconds of the machine's clock.
    pub(super) grew_ms: AtomicU64,
    /// When others gave it memory last.
    pub(super) took_ms: AtomicU64,
    /// What it wants of whom.
    pub(super) wish: AtomicU64,
    /// Since when a request of it lacks memory; 0 if none does.
    pub(super) wished_ms: AtomicU64,
    /// How much that request lacks, of all others together.
    pub(super) lacks_bytes: AtomicU64,
    /// Where what it wants may go as it is; 0 if it is to go back to the device.
    pub(super) inbox: AtomicU64,
    /// Its thread sleeps here until somebody wants something.
    pub(super) bell: AtomicU32,
    /// Who wants something sleeps here until there is an answer.
    pub(super) answers: AtomicU32,
}

/// The board of a device, joined by this process.
pub(super) struct Board {
    layout: &'static Layout,
    /// Kept open: its locks tell that this process lives.
    file: OwnedFd,
    path: CString,
    /// The file's number, which a path may lead to no more.
    inode: u64,
    own: usize,
    namespace: u64,
    process: u32,
}

impl Board {
    /// Joins the board of a device. `None` where that has no name of its own, or there can be no
    /// board, or it is full.
    pub(super) fn join(uuid: [u8; 16]) -> Option<Self> {
        let folder = std::env::var_os(VARIABLE).unwrap_or_else(|| FOLDER.into());
        if uuid == [0; 16] || folder.is_empty() {
            return None;
        }
        // SAFETY: asks for a number.
        let user = unsafe { libc::geteuid() };
        let device: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        Self::join_at(&Path::new(&folder).join(format!("drystone-{LAYOUT}-{user}-{device}")))
    }

    /// The same of a file.
    pub(super) fn join_at(path: &Path) -> Option<Self> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        for _ in 0..OPENED_MAX {
            let (file, inode) = open(&path)?;
            let own = alone(&file, || {
                // The last one of before may have removed it since it was opened.
                let is_there = life::inode(&path) == Some(inode);
                is_there.then(|| (0..SLOTS).find(|&slot| life::lock(&file, slot)))
            })?;
            if let Some(own) = own {
                return Self::begin(file, path, inode, own?);
            }
        }
        None
    }

    fn begin(file: OwnedFd, path: CString, inode: u64, own: usize) -> Option<Self> {
        let layout = map(&file)?;
        let is_fresh = layout.magic.compare_exchange(0, MAGIC, Ordering::AcqRel, Ordering::Acquire);
        if is_fresh.is_err_and(|magic| magic != MAGIC) {
            return None;
        }
        let (process, namespace) = (std::process::id(), life::namespace());
        let board = Self { layout, file, path, inode, own, namespace, process };
        board.own().begin(process, namespace);
        Some(board)
    }

    /// This process's slot.
    pub(super) fn own(&self) -> &Slot {
        &self.layout.slots[self.own]
    }

    pub(super) const fn own_index(&self) -> usize {
        self.own
    }

    pub(super) fn slot(&self, index: usize) -> Option<&Slot> {
        self.layout.slots.get(index)
    }

    /// Whether a slot is that of another process that lives.
    pub(super) fn is_alive(&self, index: usize) -> bool {
        let Some(slot) = self.slot(index).filter(|_| index != self.own) else { return false };
        let owner = slot.owner();
        if owner == 0 || !life::is_locked(&self.file, index) {
            return false;
        }
        let is_known =
            self.namespace != 0 && slot.namespace.load(Ordering::Relaxed) == self.namespace;
        !is_known || life::began((owner >> 32) as u32) == Some(owner as u32)
    }

    /// Other processes that live and hold anything, with their slots.
    pub(super) fn others(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let slots = self.layout.slots.iter().enumerate();
        slots.filter(|&(index, slot)| slot.held_bytes() > 0 && self.is_alive(index))
    }

    /// How much those lack who have lacked memory for longer than since that moment: but not for
    /// longer than they would wait.
    pub(super) fn lacked_before(&self, since_ms: u64, wait: Duration) -> u64 {
        let oldest_ms = now_ms().saturating_sub(wait.as_millis() as u64).max(1);
        let is_older = |&(index, slot): &(usize, &Slot)| {
            let (wished_ms, own) = (slot.wished_ms.load(Ordering::Acquire), self.own);
            let is_open = wished_ms >= oldest_ms && index != own;
            is_open && (wished_ms, index) < (since_ms, own) && self.is_alive(index)
        };
        let older = self.layout.slots.iter().enumerate().filter(is_older);
        let lacking = older.map(|(_, slot)| slot.lacks_bytes.load(Ordering::Relaxed));
        lacking.fold(0, u64::saturating_add)
    }

    /// Whether this is the process that joined, and not a child of it.
    pub(super) fn is_own_process(&self) -> bool {
        std::process::id() == self.process
    }

    /// Whether who looks for the board finds this one.
    #[cfg(test)]
    pub(super) fn is_found(&self) -> bool {
        life::inode(&self.path) == Some(self.inode)
    }

    /// This process goes: the last one takes the file along.
    pub(super) fn leave(&self) {
        self.own().owner.store(0, Ordering::Release);
        let left = alone(&self.file, || {
            life::unlock(&self.file, self.own);
            let is_last = !(0..SLOTS).any(|slot| life::is_locked(&self.file, slot));
            if is_last && life::inode(&self.path) == Some(self.inode) {
                // Who has opened it just now finds out, and makes a new one.
                // SAFETY: the path is a C string.
                unsafe { libc::unlink(self.path.as_ptr()) };
            }
        });
        if left.is_none() {
            life::unlock(&self.file, self.own);
        }
    }
}

/// Does something while nobody else joins or leaves the board. `None` where another process holds
/// that up.
fn alone<R>(file: &OwnedFd, run: impl FnOnce() -> R) -> Option<R> {
    let is_alone = || life::lock(file, SLOTS);
    let is_alone = is_alone()
        || (0..ALONE_TRIES).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            is_alone()
        });
    let done = is_alone.then(run);
    if is_alone {
        life::unlock(file, SLOTS);
    }
    done
}

/// Opens the file of a board, made if it is not there, and tells its inode. `None` if it is not
/// this user's alone, or of another size.
fn open(path: &CStr) -> Option<(OwnedFd, u64)> {
    let flags =
        libc::O_RDWR | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the path is a C string.
    let file = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    // SAFETY: opened above, and nobody else's.
    let file = (file >= 0).then(|| unsafe { OwnedFd::from_raw_fd(file) })?;
    // SAFETY: a plain C struct of numbers.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: writes the struct.
    let told = unsafe { libc::fstat(file.as_raw_fd(), &raw mut found) };
    // SAFETY: asks for a number.
    let user = unsafe { libc::geteuid() };
    let is_private = told == 0
        && found.st_mode & libc::S_IFMT == libc::S_IFREG
        && found.st_mode & 0o077 == 0
        && found.st_uid == user;
    let bytes = size_of::<Layout>() as libc::off_t;
    if !is_private || (found.st_size != 0 && found.st_size != bytes) {
        return None;
    }
    // So that no page is missing when it is written to, which would end the process.
    // SAFETY: the file is open.
    let is_there = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } == 0;
    is_there.then_some((file, found.st_ino as u64))
}

/// Maps a board, for good.
fn map(file: &OwnedFd) -> Option<&'static Layout> {
    let (bytes, access) = (size_of::<Layout>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping, of pages that the file has.
    let address = unsafe {
        libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if address == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: mapped for good, aligned to a page; any bytes are atomic numbers, and others of the
    // same user write there as such.
    Some(unsafe { &*address.cast::<Layout>() })
}

impl Slot {
    /// The slot is that of a new process, whatever was in it.
    fn begin(&self, process: u32, namespace: u64) {
        self.owner.store(0, Ordering::Release);
        for figure in [
            &self.held_bytes,
            &self.unused_bytes,
            &self.grew_ms,
            &self.took_ms,
            &self.wish,
            &self.wished_ms,
            &self.lacks_bytes,
            &self.inbox,
        ] {
            figure.store(0, Ordering::Relaxed);
        }
        let name = u128::from_le_bytes(life::name());
        self.name[0].store(name as u64, Ordering::Relaxed);
        self.name[1].store((name >> 64) as u64, Ordering::Relaxed);
        self.namespace.store(namespace, Ordering::Relaxed);
        let began = life::began(process).unwrap_or(0);
        self.owner.store(u64::from(process) << 32 | u64::from(began), Ordering::Release);
    }

    pub(super) fn tell(&self, held_bytes: u64, unused_bytes: u64) {
        if self.held_bytes.swap(held_bytes, Ordering::Relaxed) < held_bytes {
            self.grew_ms.store(now_ms(), Ordering::Relaxed);
        }
        self.unused_bytes.store(unused_bytes, Ordering::Relaxed);
    }

    /// Wakes its thread.
    pub(super) fn ring(&self) {
        self.bell.fetch_add(1, Ordering::Release);
        futex::wake(&self.bell);
    }

    /// New figures of what could be given back, where nothing came or went.
    pub(super) fn tell_unused(&self, unused_bytes: u64) {
        self.unused_bytes.store(unused_bytes, Ordering::Relaxed);
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// No more than is held.
    pub(super) fn unused_bytes(&self) -> u64 {
        self.unused_bytes.load(Ordering::Relaxed).min(self.held_bytes())
    }

    /// Who has it: no two processes are the same number.
    pub(super) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Acquire)
    }

    pub(super) fn process(&self) -> u32 {
        (self.owner() >> 32) as u32
    }

    /// What its program is called: letters that may be printed.
    pub(super) fn name(&self) -> String {
        let words = [&self.name[0], &self.name[1]].map(|word| word.load(Ordering::Relaxed));
        let bytes = words.into_iter().flat_map(u64::to_le_bytes).take_while(|&byte| byte != 0);
        bytes.map(|byte| if byte.is_ascii_graphic() { char::from(byte) } else { '?' }).collect()
    }

    /// All that is in it, to be overwritten.
    #[cfg(any(test, fuzzing))]
    pub(super) fn words(&self) -> impl Iterator<Item = &AtomicU64> {
        let words = ptr::from_ref(self).cast::<AtomicU64>();
        // SAFETY: a slot is made of such words, and of pairs of halves that are atomic, too.
        unsafe { std::slice::from_raw_parts(words, size_of::<Self>() / 8) }.iter()
    }

    pub(super) fn as_neighbour(&self) -> Neighbour {
        Neighbour {
            process: self.process(),
            name: self.name(),
            held_bytes: self.held_bytes(),
            unused_bytes: self.unused_bytes(),
        }
    }
}

/// The machine's clock, which all its processes share.
pub(super) fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32).as_millis() as u64
}
