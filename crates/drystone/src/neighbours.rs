//! [`Neighbours`]: other processes on the device, as an allocator sees them. Who they are and how
//! they are asked is their maker's affair.

use std::time::{Duration, Instant};

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

/// Other processes on the device. Called with no lock of the allocator's but where it says so.
pub trait Neighbours: Send + Sync {
    /// For how long they are asked for one request, however often others take what they gave.
    fn wait(&self) -> Duration;

    /// Asks them to give so many bytes back, and waits until that moment at most. Returns how many
    /// bytes they gave.
    fn ask(&self, bytes: u64, until: Instant) -> u64;

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
