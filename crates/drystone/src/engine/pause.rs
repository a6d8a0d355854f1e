//! [`Pause`]: streams that did not come to a stop in time are left alone for a while, each time for
//! twice as long, but for ten seconds at most; and on a device that cannot hold streams, for good.

use std::time::{Duration, Instant};

use drystone_driver::{Call, DriverError, ErrorCode};

use crate::out_of_memory::Stays;

/// How long nobody is held after the first stream that did not stop.
const PAUSE: Duration = Duration::from_millis(10);
/// And at most: to have tried in vain costs the 200th part of it.
const LONGEST: Duration = Duration::from_secs(10);

/// When streams may be held again, and how long they were left alone last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    until: Option<Instant>,
    last: Duration,
    /// A stream was at work, which it no longer is once the device has been waited for.
    is_for_work: bool,
    /// The device cannot hold streams.
    is_for_good: bool,
}

impl Pause {
    /// Why streams are not held at the moment.
    pub(super) fn stays(self) -> Option<Stays> {
        let is_over = self.until.is_none_or(|until| Instant::now() >= until);
        match self.is_for_good {
            true => Some(Stays::Device),
            false => (!is_over).then_some(Stays::BusyStreams),
        }
    }

    /// The device has been waited for.
    pub(super) const fn note_idle(&mut self) {
        if self.is_for_work {
            self.until = None;
        }
    }

    /// A plan that moves memory failed.
    pub(super) fn note_failure(&mut self, error: &DriverError) {
        // Copies that were not in time stand behind a stream that is held.
        if matches!(error.call, Call::Hold | Call::FinishCopies) {
            self.is_for_good |= error.code == ErrorCode::NotSupported;
            self.last = (self.last * 2).clamp(PAUSE, LONGEST);
            self.until = Some(Instant::now() + self.last);
            self.is_for_work = error.call == Call::Hold;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_busy_again_and_again_is_left_alone_for_some_seconds_at_most() {
        let mut pause = Pause::default();
        for _ in 0..200 {
            pause.note_failure(&DriverError::new(Call::Hold, ErrorCode::NotReady));
            assert!(pause.until.is_some_and(|until| until <= Instant::now() + LONGEST));
            assert_eq!(pause.stays(), Some(Stays::BusyStreams));
            pause.note_idle();
            assert_eq!(pause.stays(), None);
        }
    }
}
