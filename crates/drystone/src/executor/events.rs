//! Events: which device event stands for which fence.
//!
//! Keeps the driver's half of I9: the event of a fence is recorded before the heap hears of it, and
//! kept until it was seen complete. The lock of this table is held across `record`, `query` and
//! `wait`, which wait for no work (a full queue makes `record` wait for room in it), so that an
//! event is never reused under a caller's hands; who waits on the host says so (`begin_wait`). The
//! heap's lock is never held with it. Which handle a stream has, `streams` says. What becomes of an
//! event that stands for no fence any more is decided in `event_pool`.

use std::collections::VecDeque;

use drystone_core::{Fence, StreamId};
use drystone_driver::{Call, Driver, DriverError, ErrorCode, Event, Stream};

use super::event_pool::EventPool;

/// How many fences are recorded at least between two looks at which have passed. Enough that a look
/// costs a record next to nothing, few enough that what has passed is soon seen.
const RECORDS_A_LOOK: usize = 32;

/// The recorded fences of one stream that were not seen complete, by point.
#[derive(Debug)]
struct StreamEvents {
    id: StreamId,
    recorded: VecDeque<(u64, Event)>,
}

/// All events in use, and spare ones.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// By the position of the stream's id.
    streams: Vec<Option<StreamEvents>>,
    pool: EventPool,
    /// Fences recorded since somebody last looked at which have passed.
    unlooked: usize,
}

impl Events {
    /// Takes a stream in. One that is succeeded leaves its events, which are all complete, as
    /// spares.
    pub(crate) fn add_stream(&mut self, driver: &dyn Driver, id: StreamId) {
        if self.streams.len() <= id.index() {
            self.streams.resize_with(id.index() + 1, || None);
        }
        let of_stream = StreamEvents { id, recorded: VecDeque::new() };
        if let Some(old) = self.streams[id.index()].replace(of_stream) {
            old.recorded.into_iter().for_each(|(_, event)| self.pool.put(driver, event));
        }
    }

    /// Records a fence on its stream, which is itself and not captured.
    pub(crate) fn record(
        &mut self,
        driver: &dyn Driver,
        stream: Stream,
        fence: Fence,
    ) -> Result<(), DriverError> {
        let events = self.streams.get_mut(fence.stream.index()).and_then(Option::as_mut);
        let Some(events) = events.filter(|events| events.id == fence.stream) else {
            return Err(DriverError::new(Call::Record, ErrorCode::InvalidHandle));
        };
        let event = self.pool.take(driver)?;
        if let Err(error) = driver.record(event, stream) {
            self.pool.put(driver, event);
            return Err(error);
        }
        let at = events.recorded.partition_point(|&(point, _)| point < fence.point);
        events.recorded.insert(at, (fence.point, event));
        self.unlooked += 1;
        Ok(())
    }

    /// The event of a fence or of a later one of its stream. A fence without one was seen complete:
    /// there is nothing to wait for.
    pub(crate) fn of_fence(&self, fence: Fence) -> Option<Event> {
        let events = self.streams.get(fence.stream.index())?.as_ref()?;
        let events = Some(events).filter(|events| events.id == fence.stream)?;
        events.recorded.iter().find(|&&(point, _)| point >= fence.point).map(|&(_, event)| event)
    }

    /// The last fence that has passed of each stream that passed one since the last look.
    ///
    /// An event that cannot be asked stays for a later look: its fence has not passed yet as far
    /// as anybody knows.
    pub(crate) fn collect(&mut self, driver: &dyn Driver) -> Vec<Fence> {
        let mut passed = Vec::new();
        self.unlooked = 0;
        for events in self.streams.iter_mut().flatten() {
            let mut last = None;
            while let Some(&(point, event)) = events.recorded.front() {
                if !driver.query(event).unwrap_or(false) {
                    break;
                }
                events.recorded.pop_front();
                self.pool.put(driver, event);
                last = Some(point);
            }
            passed.extend(last.map(|point| Fence { stream: events.id, point }));
        }
        passed
    }

    /// The event of each stream's last recorded fence, to be waited for without this lock: until
    /// [`Events::end_wait`] none of them is destroyed, or recorded for another fence.
    pub(crate) fn begin_wait(&mut self) -> Vec<Event> {
        let streams = self.streams.iter().flatten();
        let last = streams.filter_map(|events| events.recorded.back().map(|&(_, event)| event));
        let events: Vec<Event> = last.collect();
        self.pool.begin_wait(&events);
        events
    }

    /// The events of a wait are not used any more.
    pub(crate) fn end_wait(&mut self, driver: &dyn Driver, events: &[Event]) {
        self.pool.end_wait(driver, events);
    }

    /// Whether some fence was not seen complete.
    pub(crate) fn any_recorded(&self) -> bool {
        self.streams.iter().flatten().any(|events| !events.recorded.is_empty())
    }

    /// Whether so many fences were recorded since the last look that one more costs each of them
    /// next to nothing: a look asks every stream.
    pub(crate) fn is_look_due(&self) -> bool {
        self.unlooked >= RECORDS_A_LOOK.max(self.streams.len())
    }

    /// Gives up every event, for teardown.
    pub(crate) fn drain(&mut self) -> Vec<Event> {
        let mut all = self.pool.drain();
        for events in self.streams.iter_mut().flatten() {
            all.extend(events.recorded.drain(..).map(|(_, event)| event));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::event_pool::POOLED_MAX;
    use super::*;
    use drystone_core::{Config, Heap, SegmentKind, StateMachine as _};
    use drystone_sim::{SimConfig, SimDevice};

    /// The device ends a thread that hands over an event which is gone.
    #[test]
    fn an_event_that_is_waited_for_is_neither_destroyed_nor_recorded_anew() {
        let device = SimDevice::new(SimConfig::default());
        let mut heap = Heap::new(Config::new(SegmentKind::Mapped, 2 << 20, 1 << 30));
        let id = heap.add_stream();
        let mut events = Events::default();
        events.add_stream(&device, id);
        let last = POOLED_MAX as u64 + 2;
        for point in 1..=last {
            events.record(&device, Stream::DEFAULT, Fence { stream: id, point }).unwrap();
        }

        let waits = [events.begin_wait(), events.begin_wait()];
        let [waited] = waits[0][..] else { panic!("one stream has events") };
        let passed = events.collect(&device);
        assert_eq!(passed, [Fence { stream: id, point: last }]);
        assert_eq!(events.pool.counts(), [POOLED_MAX, 1, 2]);
        device.synchronize_event(waited).unwrap();

        events.end_wait(&device, &waits[0]);
        assert_eq!(events.pool.counts(), [POOLED_MAX, 1, 1], "another still waits for it");
        events.end_wait(&device, &waits[1]);
        assert_eq!(events.pool.counts(), [POOLED_MAX, 0, 0]);
    }
}
