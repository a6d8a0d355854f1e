//! [`EventPool`]: events that stand for no fence any more, to be recorded for later ones.
//!
//! Invariant: an event that somebody waits for without the lock is neither recorded anew nor
//! destroyed before he is done: until then it is kept aside.

use drystone_driver::{Driver, DriverError, Event};

/// How many events are kept for later records. A device that falls far behind needs more at a time;
/// what it then leaves is destroyed.
pub(super) const POOLED_MAX: usize = 256;

/// Events that stand for no fence, and those that are waited for.
#[derive(Debug, Default)]
pub(super) struct EventPool {
    free: Vec<Event>,
    /// As often as they are waited for, standing for a fence or not.
    waited: Vec<Event>,
    /// Those of them that stand for none.
    aside: Vec<Event>,
}

impl EventPool {
    /// An event to record, made if there is none.
    pub(super) fn take(&mut self, driver: &dyn Driver) -> Result<Event, DriverError> {
        self.free.pop().map_or_else(|| driver.create_event(), Ok)
    }

    /// An event stands for no fence any more: it is kept or destroyed. One that cannot be destroyed
    /// is kept, too.
    pub(super) fn put(&mut self, driver: &dyn Driver, event: Event) {
        if self.waited.contains(&event) {
            self.aside.push(event);
        } else if self.free.len() < POOLED_MAX || driver.destroy_event(event).is_err() {
            self.free.push(event);
        }
    }

    /// Events are waited for without the lock.
    pub(super) fn begin_wait(&mut self, events: &[Event]) {
        self.waited.extend(events);
    }

    /// They are not any more, by who began that wait.
    pub(super) fn end_wait(&mut self, driver: &dyn Driver, events: &[Event]) {
        for event in events {
            if let Some(at) = self.waited.iter().position(|waited| waited == event) {
                self.waited.swap_remove(at);
            }
        }
        for event in std::mem::take(&mut self.aside) {
            self.put(driver, event);
        }
    }

    /// All of them, for teardown.
    pub(super) fn drain(&mut self) -> Vec<Event> {
        let mut all = std::mem::take(&mut self.free);
        all.append(&mut self.aside);
        all
    }

    /// How many are free, aside, and waited for.
    #[cfg(test)]
    pub(super) fn counts(&self) -> [usize; 3] {
        [self.free.len(), self.aside.len(), self.waited.len()]
    }
}
