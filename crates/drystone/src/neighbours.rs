//! [`Neighbours`]: other processes on the device, as an allocator sees them. Who they are and how
//! they are asked is their maker's affair.

use std::time::{Duration, Instant};

use drystone_driver::Descriptor;

/// Another process that has memory of the device by an allocator of this kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Neighbour {
    /// Its number, as it knows itself.
    pub process: u32,
    /// What its program is called, cut.
    pub name: String,
    /// What it holds, in bytes.
    pub held_bytes: u64,
    /// Of that, what it could give back, when it said so last.
    pub unused_bytes: u64,
}

/// A handle of physical memory on its way from one process to another, which nobody else has. The
/// memory goes back to the device with the descriptor, if nobody takes it in.
#[derive(Debug)]
pub struct LooseHandle {
    /// What leads to it.
    pub descriptor: Descriptor,
    /// Its size, as the giver says.
    pub bytes: u64,
}

/// What other processes gave.
#[derive(Debug, Default)]
pub struct Gift {
    /// How much, in bytes.
    pub bytes: u64,
    /// The part of it that comes as it is. The device has the rest.
    pub handles: Vec<LooseHandle>,
}

/// Other processes on the device. Called with no lock of the allocator's but where it says so.
pub trait Neighbours: Send + Sync {
    /// For how long they are asked for one request, however often others take what they gave.
    fn wait(&self) -> Duration;

    /// Asks them to give so many bytes back, and waits until that moment at most. `takes_handles`:
    /// what they give may come as it is, rather than by way of the device.
    fn ask(&self, bytes: u64, takes_handles: bool, until: Instant) -> Gift;

    /// How many descriptors of memory that they gave may stay open.
    fn descriptors_max(&self) -> usize;

    /// The request that they were asked for is served, or refused.
    fn end(&self);

    /// This allocator holds so many bytes now, of which so many are unused. Told where memory comes
    /// and goes, with the lock held under which it does.
    fn tell(&self, held_bytes: u64, unused_bytes: u64);

    /// How many bytes they could give, as they said last. They are asked to say it anew, and not
    /// waited for.
    fn offered_bytes(&self) -> u64;

    /// Those that hold anything. They are asked for new figures, or what they said last counts: as
    /// where it is called with a lock held.
    fn others(&self, is_fresh: bool) -> Vec<Neighbour>;
}
