//! [`Held`]: streams that stand still, and what lets them go.

use drystone_driver::Stream;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long streams are waited for that are to be held.
pub(crate) const PATIENCE: Duration = Duration::from_millis(2);

/// Streams that stand still, since one thread holds them.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) thread: thread::ThreadId,
    pub(crate) streams: Vec<Stream>,
    /// Since when, in nanoseconds of the host's time.
    pub(crate) since_ns: u64,
    /// What lets them go, where that is not a call.
    pub(crate) gate: Option<Gate>,
}

/// Tells whether what streams wait for has come: a word in memory has a value, say.
#[derive(Clone)]
pub struct Gate(pub Arc<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&(self.0)()).finish()
    }
}

/// Who knows memory by its address beside the streams of the device.
#[derive(Debug, Default)]
pub(crate) struct Bystanders {
    /// Where network cards or other processes reach memory, from and to.
    pub(crate) registered: Vec<(u64, u64)>,
    /// Granules of live memory that were unmapped while streams stand still, and how many peers
    /// each was open to.
    pub(crate) lifted: Vec<(u64, u32)>,
}

/// What moves of memory have taken of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// How often streams were held.
    pub holds: u64,
    /// For how long in all, in nanoseconds.
    pub held_ns: u64,
    /// For how long at most at a time.
    pub longest_ns: u64,
    /// How many bytes were copied.
    pub copied_bytes: u64,
}
