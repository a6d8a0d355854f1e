//! What the driver is asked about a stream that a call brings by its handle, and how often.

use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex};

use drystone::driver::{Call, CaptureMode, Driver, Stream};
use drystone::{Allocator, Options, StreamEnd, StreamId};
use drystone_sim::SimDevice;

use crate::altered::{Alteration, Altered};
use crate::sim::watched;

/// Notes the questions, and how often each was asked.
#[derive(Default)]
struct Noted(Mutex<BTreeMap<&'static str, u32>>);

impl Alteration for Arc<Noted> {
    fn before(&self, call: Call) {
        match call {
            Call::StreamUid => self.before_asking("identity"),
            Call::CaptureStatus => self.before_asking("capture"),
            _ => {}
        }
    }

    fn before_asking(&self, of: &'static str) {
        *self.0.lock().unwrap().entry(of).or_default() += 1;
    }
}

struct Bench {
    device: SimDevice,
    noted: Arc<Noted>,
    allocator: Allocator,
}

impl Bench {
    fn new() -> Self {
        let (device, noted) = (SimDevice::new(watched()), Arc::<Noted>::default());
        let (inner, alteration) = (Arc::new(device.clone()), Arc::clone(&noted));
        let driver: Arc<dyn Driver> = Arc::new(Altered { inner, alteration });
        let allocator = Allocator::new(driver, &Options::default()).unwrap();
        Self { device, noted, allocator }
    }

    /// The key of a stream, and what was asked for it.
    fn bring(&self, stream: Stream, end: StreamEnd) -> (StreamId, Vec<(&'static str, u32)>) {
        self.noted.0.lock().unwrap().clear();
        let id = self.allocator.stream(stream, || end).unwrap();
        (id, mem::take(&mut *self.noted.0.lock().unwrap()).into_iter().collect())
    }

    fn bring_elsewhere(
        &self,
        stream: Stream,
        end: StreamEnd,
    ) -> (StreamId, Vec<(&'static str, u32)>) {
        std::thread::scope(|scope| scope.spawn(|| self.bring(stream, end)).join().unwrap())
    }
}

const NEW: [(&str, u32); 3] = [("context", 1), ("context of the stream", 1), ("identity", 1)];

#[test]
fn a_new_stream_is_asked_once_who_it_is() {
    let bench = Bench::new();
    for end in [StreamEnd::Told, StreamEnd::Untold, StreamEnd::Unknown] {
        let stream = bench.device.create_stream();
        let (id, asked) = bench.bring(stream, end);
        assert_eq!(asked, NEW, "{end:?}");
        let (same, asked) = bench.bring(stream, end);
        assert_eq!(same, id);
        match end {
            StreamEnd::Told => assert_eq!(asked, []),
            StreamEnd::Untold => assert_eq!(asked, [("identity", 1)]),
            StreamEnd::Unknown => assert_eq!(asked, [("context", 1), ("identity", 1)]),
        }
        let (same, asked) = bench.bring_elsewhere(stream, end);
        assert_eq!((same, asked), (id, vec![("context", 1), ("identity", 1)]), "{end:?}");
    }
}

/// What any thread has said of its end counts.
#[test]
fn a_stream_that_is_said_to_stay_is_not_asked_again() {
    let bench = Bench::new();
    let stream = bench.device.create_stream();
    let (id, _) = bench.bring(stream, StreamEnd::Unknown);
    assert_eq!(bench.bring_elsewhere(stream, StreamEnd::Told).0, id);
    assert_eq!(bench.bring(stream, StreamEnd::Unknown).0, id);
    assert_eq!(bench.bring(stream, StreamEnd::Unknown), (id, vec![]));
}

/// Also by another thread, and with its handle: another stream has that by now (B2).
#[test]
fn b02_a_handle_that_came_back_is_asked_about_in_every_thread() {
    let bench = Bench::new();
    let stream = bench.device.create_stream();
    let (old, _) = bench.bring(stream, StreamEnd::Told);
    std::thread::scope(|scope| {
        let retire = || {
            bench.allocator.retire_stream(old).unwrap();
            bench.device.destroy_stream(stream).unwrap();
        };
        scope.spawn(retire).join().unwrap();
    });
    assert_eq!(bench.device.create_stream(), stream, "the handle comes back");
    let (new, asked) = bench.bring(stream, StreamEnd::Told);
    assert_ne!(new, old);
    assert_eq!(asked, NEW);
    assert_eq!(bench.allocator.stream_handle(new.index()), Some(stream));
}

#[test]
fn i11_a_captured_stream_keeps_its_key() {
    let bench = Bench::new();
    let stream = bench.device.create_stream();
    let (id, _) = bench.bring(stream, StreamEnd::Untold);
    bench.device.begin_capture(stream, CaptureMode::Global).unwrap();
    assert_eq!(bench.bring(stream, StreamEnd::Untold).0, id);
    bench.device.end_capture(stream).unwrap();
    assert_eq!(bench.bring(stream, StreamEnd::Untold), (id, vec![("identity", 1)]));
}
