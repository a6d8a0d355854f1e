//! [`Told`]: who is told of what blocks come to.
//!
//! Invariant: one load says whether a free is anybody's business, so that it costs no more the
//! more there are who could ask.

use std::sync::atomic::{AtomicU8, Ordering};

/// Those who are told, as bits of one number.
#[derive(Debug, Default)]
pub(crate) struct Told(AtomicU8);

/// One of those who may be told.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Who {
    /// A recording is being made.
    Recorder = 1,
    /// Some block has a tag.
    Tags = 2,
}

impl Told {
    #[inline]
    pub(crate) fn is_anybody(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    #[inline]
    pub(crate) fn is(&self, who: Who) -> bool {
        self.0.load(Ordering::Relaxed) & who as u8 != 0
    }

    pub(crate) fn begin(&self, who: Who) {
        self.0.fetch_or(who as u8, Ordering::SeqCst);
    }

    pub(crate) fn end(&self, who: Who) {
        self.0.fetch_and(!(who as u8), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Told, Who};

    #[test]
    fn who_is_told_ends_alone() {
        let told = Told::default();
        told.begin(Who::Recorder);
        told.begin(Who::Tags);
        told.end(Who::Recorder);
        assert!(told.is_anybody() && told.is(Who::Tags) && !told.is(Who::Recorder));
    }
}
