//! [`StateLock`]: a state machine behind its lock, and what becomes of it once an invariant broke.
//!
//! Invariant: what a panic left half changed is never changed again, since nobody knows what of it
//! is still true. It is poisoned: to be looked at, and no more.

use std::mem;
use std::ops::{Deref, Range};

use drystone_core::Poisoned;
use parking_lot::{Mutex, MutexGuard};

/// A thread that finds the lock taken looks for it again after 2^4 pauses of the processor, then
/// after twice as many each time, and sleeps once 2^9 were in vain: some 50 µs altogether. A change
/// takes a thousandth of that, so barely anyone sleeps, which costs two calls of the system. Longer
/// pauses leave the other thread several changes on end, with the state in its own caches.
const PAUSES_LOG2: Range<u32> = 4..10;

/// A state machine behind its lock.
pub(crate) struct StateLock<S: ?Sized>(Mutex<Guarded<S>>);

struct Guarded<S: ?Sized> {
    /// A panic ended a change.
    is_poisoned: bool,
    state: S,
}

/// Poisons a state when it is dropped, which is by a panic alone.
struct PoisonedBy<'a>(&'a mut bool);

impl Drop for PoisonedBy<'_> {
    #[cold]
    fn drop(&mut self) {
        *self.0 = true;
    }
}

impl<S> StateLock<S> {
    pub(crate) const fn new(state: S) -> Self {
        Self(Mutex::new(Guarded { is_poisoned: false, state }))
    }
}

impl<S: ?Sized> StateLock<S> {
    /// The state, to look at: poisoned or not.
    pub(crate) fn read(&self) -> impl Deref<Target = S> {
        MutexGuard::map(self.0.lock(), |guarded| &mut guarded.state)
    }

    /// The lock, which another thread has.
    #[cold]
    #[inline(never)]
    fn wait(&self) -> MutexGuard<'_, Guarded<S>> {
        for log2 in PAUSES_LOG2 {
            (0..1 << log2).for_each(|_| std::hint::spin_loop());
            if let Some(guarded) = self.0.try_lock() {
                return guarded;
            }
        }
        self.0.lock()
    }

    /// Changes the state. A panic of the change poisons it.
    ///
    /// Errors: it is poisoned already, and unchanged.
    #[inline]
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut S) -> T) -> Result<T, Poisoned> {
        let mut guarded = self.0.try_lock().unwrap_or_else(|| self.wait());
        let Guarded { is_poisoned, state } = &mut *guarded;
        if *is_poisoned {
            return Err(Poisoned);
        }
        let panic = PoisonedBy(is_poisoned);
        let outcome = change(state);
        mem::forget(panic);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// As a destructor does that frees a block while its thread unwinds.
    struct ChangesAtItsEnd<'a>(&'a StateLock<u32>);

    impl Drop for ChangesAtItsEnd<'_> {
        fn drop(&mut self) {
            assert_eq!(self.0.change(|state| *state += 1), Ok(()));
        }
    }

    #[test]
    fn a_panic_within_a_change_poisons_and_one_around_it_does_not() {
        let lock = StateLock::new(1);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _changes = ChangesAtItsEnd(&lock);
            panic!("of the program");
        }));
        assert!(unwound.is_err());
        assert_eq!(lock.change(|state| *state), Ok(2));
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            lock.change(|state| {
                *state = 3;
                panic!("of the state machine");
            })
        }));
        assert!(unwound.is_err());
        assert_eq!(lock.change(|state| *state = 4), Err(Poisoned));
        assert_eq!(*lock.read(), 3);
    }
}
