//! [`Observers`]: which parts of the library follow what becomes of blocks.
//!
//! Invariant: one load says whether a free concerns any of them, so that it costs no more the more
//! there are.

use std::sync::atomic::{AtomicU8, Ordering};

/// The observers there are now, as bits of one number.
#[derive(Debug, Default)]
pub(crate) struct Observers(AtomicU8);

/// A part that may follow blocks.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Observer {
    /// A recording is being made.
    Recorder = 1,
    /// Some block has a tag.
    Tags = 2,
}

impl Observers {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    #[inline]
    pub(crate) fn has(&self, observer: Observer) -> bool {
        self.0.load(Ordering::Relaxed) & observer as u8 != 0
    }

    pub(crate) fn add(&self, observer: Observer) {
        self.0.fetch_or(observer as u8, Ordering::SeqCst);
    }

    pub(crate) fn remove(&self, observer: Observer) {
        self.0.fetch_and(!(observer as u8), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Observer, Observers};

    #[test]
    fn an_observer_is_removed_alone() {
        let observers = Observers::default();
        observers.add(Observer::Recorder);
        observers.add(Observer::Tags);
        observers.remove(Observer::Recorder);
        assert!(!observers.is_empty() && observers.has(Observer::Tags));
        assert!(!observers.has(Observer::Recorder));
    }
}
