//! Events: which device event stands for which fence.
//!
//! Keeps the driver's half of I9: the event of a fence is recorded before the heap hears of it, and
//! kept until it was seen complete. The lock of this table is held across `record`, `query` and
//! `wait`, which never block, so that an event is never reused under a caller's hands; the heap's
//! lock is never held with it.

use std::collections::VecDeque;

use drystone_core::{Fence, StreamId};
use drystone_driver::{
    Call, CaptureStatus, Driver, DriverError, ErrorCode, Event, Stream, StreamUid,
};
use parking_lot::Mutex;

/// One stream of the heap on the device.
#[derive(Debug)]
struct Lane {
    id: StreamId,
    /// The device's handle; `None` from retirement on, when it may be anybody's.
    stream: Option<Stream>,
    /// Tells the stream from a later one with the same handle.
    uid: StreamUid,
    /// Recorded fences that were not seen complete, by point.
    recorded: VecDeque<(u64, Event)>,
}

/// All events in use, and spare ones.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// By the position of the stream's id.
    lanes: Vec<Option<Lane>>,
    spare: Vec<Event>,
}

impl Events {
    /// Takes a stream in. One that is succeeded leaves its events, which are all complete, as
    /// spares.
    pub(crate) fn add_stream(&mut self, id: StreamId, stream: Stream, uid: StreamUid) {
        if self.lanes.len() <= id.index() {
            self.lanes.resize_with(id.index() + 1, || None);
        }
        let lane = Lane { id, stream: Some(stream), uid, recorded: VecDeque::new() };
        if let Some(old) = self.lanes[id.index()].replace(lane) {
            self.spare.extend(old.recorded.into_iter().map(|(_, event)| event));
        }
    }

    /// The stream is retired: its handle is not used again. Its events stay.
    pub(crate) fn forget_handle(&mut self, id: StreamId) {
        let lane = self.lanes.get_mut(id.index()).and_then(Option::as_mut);
        if let Some(lane) = lane.filter(|lane| lane.id == id) {
            lane.stream = None;
        }
    }

    /// Records a fence on its stream.
    ///
    /// A stream that is being captured is refused: the event would belong to the graph and never
    /// complete. So is one that was destroyed without notice, also once its handle is another
    /// stream's, whose progress says nothing (B2).
    pub(crate) fn record(&mut self, driver: &dyn Driver, fence: Fence) -> Result<(), DriverError> {
        let lane = self.lanes.get_mut(fence.stream.index()).and_then(Option::as_mut);
        let Some(lane) = lane.filter(|lane| lane.id == fence.stream) else {
            return Err(DriverError::new(Call::Record, ErrorCode::InvalidHandle));
        };
        let Some(stream) = lane.stream else {
            return Err(DriverError::new(Call::Record, ErrorCode::InvalidHandle));
        };
        if driver.capture_status(stream)? != CaptureStatus::None {
            return Err(DriverError::new(Call::Record, ErrorCode::CapturedEvent));
        }
        check_identity(driver, Call::Record, stream, lane.uid)?;
        let event = match self.spare.pop() {
            Some(event) => event,
            None => driver.create_event()?,
        };
        if let Err(error) = driver.record(event, stream) {
            self.spare.push(event);
            return Err(error);
        }
        let at = lane.recorded.partition_point(|&(point, _)| point < fence.point);
        lane.recorded.insert(at, (fence.point, event));
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
        let event = self.lane(fence.stream).and_then(|lane| {
            lane.recorded.iter().find(|&&(point, _)| point >= fence.point).map(|&(_, event)| event)
        });
        let Some(event) = event else { return Ok(()) };
        let known = self.lane(stream).and_then(|lane| Some((lane.stream?, lane.uid)));
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
        for lane in self.lanes.iter_mut().flatten() {
            let mut last = None;
            while let Some(&(point, event)) = lane.recorded.front() {
                if !driver.query(event).unwrap_or(false) {
                    break;
                }
                lane.recorded.pop_front();
                self.spare.push(event);
                last = Some(point);
            }
            passed.extend(last.map(|point| Fence { stream: lane.id, point }));
        }
        passed
    }

    /// The last recorded fence of each stream, with its event.
    pub(crate) fn last_recorded(&self) -> Vec<(Fence, Event)> {
        let lanes = self.lanes.iter().flatten();
        lanes
            .filter_map(|lane| {
                let &(point, event) = lane.recorded.back()?;
                Some((Fence { stream: lane.id, point }, event))
            })
            .collect()
    }

    /// Whether some fence was not seen complete.
    pub(crate) fn any_recorded(&self) -> bool {
        self.lanes.iter().flatten().any(|lane| !lane.recorded.is_empty())
    }

    /// Gives up every event, for teardown.
    pub(crate) fn drain(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.spare);
        for lane in self.lanes.iter_mut().flatten() {
            events.extend(lane.recorded.drain(..).map(|(_, event)| event));
        }
        events
    }

    /// The device's handle of a stream that is not retired.
    pub(crate) fn stream(&self, id: StreamId) -> Option<Stream> {
        self.lane(id)?.stream
    }

    /// The device's handles of all streams that are not retired.
    pub(crate) fn streams(&self) -> Vec<Stream> {
        self.lanes.iter().flatten().filter_map(|lane| lane.stream).collect()
    }

    /// The handle of a stream that is neither retired nor, as far as that may be asked, another
    /// stream's by now; and whether it is captured.
    pub(crate) fn look_up(
        events: &Mutex<Events>,
        driver: &dyn Driver,
        call: Call,
        id: StreamId,
    ) -> Result<(Stream, CaptureStatus), DriverError> {
        let known = events.lock().lane(id).and_then(|lane| Some((lane.stream?, lane.uid)));
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

    /// All streams that are not retired.
    pub(crate) fn ids(&self) -> Vec<StreamId> {
        let live = self.lanes.iter().flatten().filter(|lane| lane.stream.is_some());
        live.map(|lane| lane.id).collect()
    }

    fn lane(&self, id: StreamId) -> Option<&Lane> {
        self.lanes.get(id.index())?.as_ref().filter(|lane| lane.id == id)
    }
}

/// A handle says nothing of who is behind it: the identity does.
fn check_identity(
    driver: &dyn Driver,
    call: Call,
    stream: Stream,
    uid: StreamUid,
) -> Result<(), DriverError> {
    if driver.stream_uid(stream)? == uid {
        return Ok(());
    }
    Err(DriverError::new(call, ErrorCode::InvalidHandle))
}
