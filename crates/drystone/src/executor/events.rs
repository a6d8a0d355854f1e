//! Events: which device event stands for which fence.
//!
//! Keeps the driver's half of I9: the event of a fence is recorded before the heap hears of it, and
//! kept until it was seen complete. The lock of this table is held across `record`, `query` and
//! `wait`, which wait for no work (a full queue makes `record` wait for room in it), so that an
//! event is never reused under a caller's hands; who waits on the host says so (`begin_wait`). The
//! heap's lock is never held with it. What becomes of an event that stands for no fence any more is
//! decided in `spare`.

use std::collections::VecDeque;

use drystone_core::{Fence, StreamId};
use drystone_driver::{
    Call, CaptureStatus, Driver, DriverError, ErrorCode, Event, Stream, StreamUid,
};
use parking_lot::Mutex;

use super::capture::stream_uid;
use super::spare::SpareEvents;

/// How many fences are recorded at least between two looks at which have passed. Enough that a look
/// costs a record next to nothing, few enough that what has passed is soon seen.
const RECORDS_A_LOOK: usize = 32;

/// One stream of the heap on the device.
#[derive(Debug)]
struct StreamEvents {
    id: StreamId,
    /// The device's handle; `None` from retirement on, when it may be anybody's.
    stream: Option<Stream>,
    /// Tells the stream from a later one with the same handle.
    uid: StreamUid,
    /// Nobody says when it ends: the driver is asked of it by calls alone that bring it.
    is_passing: bool,
    /// Recorded fences that were not seen complete, by point.
    recorded: VecDeque<(u64, Event)>,
}

/// All events in use, and spare ones.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// By the position of the stream's id.
    streams: Vec<Option<StreamEvents>>,
    spare: SpareEvents,
    /// Fences recorded since somebody last looked at which have passed.
    unlooked: usize,
}

impl Events {
    /// Takes a stream in. One that is succeeded leaves its events, which are all complete, as
    /// spares.
    pub(crate) fn add_stream(
        &mut self,
        driver: &dyn Driver,
        id: StreamId,
        stream: Stream,
        uid: StreamUid,
    ) {
        if self.streams.len() <= id.index() {
            self.streams.resize_with(id.index() + 1, || None);
        }
        let of_stream = StreamEvents {
            id,
            stream: Some(stream),
            uid,
            is_passing: false,
            recorded: VecDeque::new(),
        };
        if let Some(old) = self.streams[id.index()].replace(of_stream) {
            old.recorded.into_iter().for_each(|(_, event)| self.spare.put(driver, event));
        }
    }

    /// The stream is retired: its handle is not used again. Its events stay.
    pub(crate) fn forget_handle(&mut self, id: StreamId) {
        if let Some(events) = self.of_mut(id) {
            events.stream = None;
        }
    }

    /// Whether nobody says when the stream ends.
    pub(crate) fn set_passing(&mut self, id: StreamId, is_passing: bool) {
        if let Some(events) = self.of_mut(id) {
            events.is_passing = is_passing;
        }
    }

    /// Any stream may have ended by now.
    pub(crate) fn let_all_pass(&mut self) {
        self.streams.iter_mut().flatten().for_each(|events| events.is_passing = true);
    }

    /// Whether a stream is known of which nobody says when it ends.
    pub(crate) fn is_passing(&self, id: StreamId) -> bool {
        self.of(id).is_some_and(|events| events.is_passing)
    }

    /// Records a fence on its stream.
    ///
    /// A stream that is being captured is refused: the event would belong to the graph and never
    /// complete. So is one that was destroyed without notice, also once its handle is another
    /// stream's, whose progress says nothing (B2).
    pub(crate) fn record(&mut self, driver: &dyn Driver, fence: Fence) -> Result<(), DriverError> {
        let events = self.streams.get_mut(fence.stream.index()).and_then(Option::as_mut);
        let Some(events) = events.filter(|events| events.id == fence.stream) else {
            return Err(DriverError::new(Call::Record, ErrorCode::InvalidHandle));
        };
        let Some(stream) = events.stream else {
            return Err(DriverError::new(Call::Record, ErrorCode::InvalidHandle));
        };
        if driver.capture_status(stream)? != CaptureStatus::None {
            return Err(DriverError::new(Call::Record, ErrorCode::CapturedEvent));
        }
        check_identity(driver, Call::Record, stream, events.uid)?;
        let event = self.spare.take(driver)?;
        if let Err(error) = driver.record(event, stream) {
            self.spare.put(driver, event);
            return Err(error);
        }
        let at = events.recorded.partition_point(|&(point, _)| point < fence.point);
        events.recorded.insert(at, (fence.point, event));
        self.unlooked += 1;
        Ok(())
    }

    /// Makes a stream wait for a fence or a later one of its stream. A fence without an event was
    /// seen complete: there is nothing to wait for.
    pub(crate) fn wait(
        &mut self,
        driver: &dyn Driver,
        stream: StreamId,
        fence: Fence,
    ) -> Result<(), DriverError> {
        let event = self.of(fence.stream).and_then(|events| {
            events
                .recorded
                .iter()
                .find(|&&(point, _)| point >= fence.point)
                .map(|&(_, event)| event)
        });
        let Some(event) = event else { return Ok(()) };
        let known = self.of(stream).and_then(|events| Some((events.stream?, events.uid)));
        let Some((stream, uid)) = known else {
            return Err(DriverError::new(Call::Wait, ErrorCode::InvalidHandle));
        };
        // In another thread the handle is that thread's stream, and it would wait (B4).
        if stream == Stream::PER_THREAD {
            check_identity(driver, Call::Wait, stream, uid)?;
        }
        driver.wait(stream, event)
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
                self.spare.put(driver, event);
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
        self.spare.begin_wait(&events);
        events
    }

    /// The events of a wait are not used any more.
    pub(crate) fn end_wait(&mut self, driver: &dyn Driver, events: &[Event]) {
        self.spare.end_wait(driver, events);
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
        let mut all = self.spare.drain();
        for events in self.streams.iter_mut().flatten() {
            all.extend(events.recorded.drain(..).map(|(_, event)| event));
        }
        all
    }

    /// The device's handle of a stream that is not retired.
    pub(crate) fn stream(&self, id: StreamId) -> Option<Stream> {
        self.of(id)?.stream
    }

    /// Who a stream is.
    pub(crate) fn uid(&self, id: StreamId) -> Option<StreamUid> {
        self.of(id).map(|events| events.uid)
    }

    /// The calling thread's own stream, if that was added as one whose end will be told.
    pub(crate) fn own_of_thread(&self, driver: &dyn Driver) -> Option<StreamId> {
        let mut own = self.lasting().filter(|events| events.stream == Some(Stream::PER_THREAD));
        let first = own.next()?;
        let uid = stream_uid(driver, Stream::PER_THREAD).ok()?;
        std::iter::once(first).chain(own).find(|events| events.uid == uid).map(|events| events.id)
    }

    /// The device's handles of all streams that may be asked at any time; of threads' own streams
    /// it is that of the thread which asks.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        self.lasting().filter_map(|events| events.stream).collect()
    }

    /// Streams that are not retired, and whose end will be told.
    fn lasting(&self) -> impl Iterator<Item = &StreamEvents> {
        let all = self.streams.iter().flatten();
        all.filter(|events| events.stream.is_some() && !events.is_passing)
    }

    /// The handle of a stream that is neither retired nor, as far as that may be asked, another
    /// stream's by now; and whether it is captured.
    pub(crate) fn look_up(
        events: &Mutex<Events>,
        driver: &dyn Driver,
        call: Call,
        id: StreamId,
    ) -> Result<(Stream, CaptureStatus), DriverError> {
        let known = events.lock().of(id).and_then(|events| Some((events.stream?, events.uid)));
        let Some((stream, uid)) = known else {
            return Err(DriverError::new(call, ErrorCode::InvalidHandle));
        };
        let status = driver.capture_status(stream)?;
        // In a capture a stream is not asked who it is: drivers refuse that.
        if status == CaptureStatus::None {
            check_identity(driver, call, stream, uid)?;
        }
        Ok((stream, status))
    }

    /// All streams that may be asked at any time.
    pub(crate) fn ids(&self) -> Vec<StreamId> {
        self.lasting().map(|events| events.id).collect()
    }

    fn of(&self, id: StreamId) -> Option<&StreamEvents> {
        self.streams.get(id.index())?.as_ref().filter(|events| events.id == id)
    }

    fn of_mut(&mut self, id: StreamId) -> Option<&mut StreamEvents> {
        self.streams.get_mut(id.index())?.as_mut().filter(|events| events.id == id)
    }
}

/// A handle says nothing of who is behind it: the identity does.
fn check_identity(
    driver: &dyn Driver,
    call: Call,
    stream: Stream,
    uid: StreamUid,
) -> Result<(), DriverError> {
    if stream_uid(driver, stream)? == uid {
        return Ok(());
    }
    Err(DriverError::new(call, ErrorCode::InvalidHandle))
}

#[cfg(test)]
mod tests {
    use super::super::spare::SPARE_MAX;
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
        let uid = device.stream_uid(Stream::DEFAULT).unwrap();
        events.add_stream(&device, id, Stream::DEFAULT, uid);
        let last = SPARE_MAX as u64 + 2;
        for point in 1..=last {
            events.record(&device, Fence { stream: id, point }).unwrap();
        }

        let waits = [events.begin_wait(), events.begin_wait()];
        let [waited] = waits[0][..] else { panic!("one stream has events") };
        let passed = events.collect(&device);
        assert_eq!(passed, [Fence { stream: id, point: last }]);
        assert_eq!(events.spare.counts(), [SPARE_MAX, 1, 2]);
        device.synchronize_event(waited).unwrap();

        events.end_wait(&device, &waits[0]);
        assert_eq!(events.spare.counts(), [SPARE_MAX, 1, 1], "another still waits for it");
        events.end_wait(&device, &waits[1]);
        assert_eq!(events.spare.counts(), [SPARE_MAX, 0, 0]);
    }
}
