//! What the features `tracing`, `metrics` and `serde` tell a program: events by target, level and
//! field, gauges by name and label, statistics as fields. A hit tells nobody.
#![cfg(all(feature = "metrics", feature = "serde", feature = "tracing"))]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drystone::driver::Stream;
use drystone::{Allocator, Options};
use drystone_sim::{SimConfig, SimDevice};
use metrics::{
    Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};

const MIB: u64 = 1 << 20;

fn allocator() -> Allocator {
    let config = SimConfig { total_bytes: 256 * MIB, ..SimConfig::default() };
    Allocator::new(Arc::new(SimDevice::new(config)), &Options::default()).unwrap()
}

/// Events, each with its level and fields as text.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<(Level, String)>>>);

impl Events {
    fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Events {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "drystone"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push((*event.metadata().level(), fields.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Taken by each test: whether an event is told is settled where it first happens, and a thread
/// without a subscriber may settle it while another sets its own.
fn turn() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn tracing_tells_driver_calls_what_makes_room_and_refusals() {
    let _turn = turn();
    let events = Events::default();
    tracing::subscriber::with_default(events.clone(), || {
        let allocator = allocator();
        let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
        drop(allocator.allocate(stream, 100 * MIB).unwrap());
        let told = events.take();
        let is_call = |(level, text): &(Level, String)| {
            *level == Level::TRACE && text.contains("driver call") && text.contains("step=")
        };
        assert!(told.iter().any(is_call), "{told:?}");

        drop(allocator.allocate(stream, 100 * MIB).unwrap());
        assert_eq!(events.take(), [], "a hit");

        let kept = allocator.allocate(stream, 200 * MIB).unwrap();
        events.take();
        allocator.allocate(stream, 100 * MIB).unwrap_err();
        let told = events.take();
        let of = |wanted: Level| told.iter().filter(move |(level, _)| *level == wanted);
        let refused: Vec<_> = of(Level::WARN).collect();
        assert_eq!(refused.len(), 1, "{told:?}");
        let (_, text) = refused[0];
        assert!(text.contains("refused") && text.contains(&format!("bytes={}", 100 * MIB)));
        assert!(text.contains("error="), "{text}");
        drop(kept);
    });
}

/// Gauges by name and labels.
#[derive(Clone, Default)]
struct Gauges(Arc<Mutex<BTreeMap<String, f64>>>);

struct OneGauge(Gauges, String);

impl GaugeFn for OneGauge {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.0.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = labels.fold(key.name().to_owned(), |name, label| name + &label);
        Gauge::from_arc(Arc::new(OneGauge(self.clone(), name)))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn metrics_are_what_the_statistics_say() {
    let _turn = turn();
    let gauges = Gauges::default();
    metrics::with_local_recorder(&gauges, || {
        let allocator = allocator();
        let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
        let kept = allocator.allocate(stream, 3 * MIB + 1).unwrap().tagged(&allocator.tag("kv"));
        allocator.emit_metrics();
        let all = allocator.stats().all;
        let told = gauges.0.lock().unwrap().clone();
        let expected = [
            ("drystone_active_bytes device=0", all.active_bytes.current),
            ("drystone_allocated_bytes device=0", all.allocated_bytes.current),
            ("drystone_requested_bytes device=0", 3 * MIB + 1),
            ("drystone_reserved_bytes device=0", all.reserved_bytes.current),
            ("drystone_tag_bytes device=0 tag=kv", allocator.tag_stats()[0].bytes),
        ];
        let expected = expected.map(|(name, bytes)| (name.to_owned(), bytes as f64));
        assert_eq!(told.into_iter().collect::<Vec<_>>(), expected);
        drop(kept);
        allocator.emit_metrics();
        assert_eq!(gauges.0.lock().unwrap()["drystone_requested_bytes device=0"], 0.0);
    });
}

#[test]
fn statistics_and_snapshots_are_written_by_their_fields() {
    let _turn = turn();
    let allocator = allocator();
    let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
    let kept = allocator.allocate(stream, 5 * MIB).unwrap();
    let stats = serde_json::to_value(allocator.stats()).unwrap();
    assert_eq!(stats["all"]["requested_bytes"]["current"], 5 * MIB);
    assert_eq!(stats["all"]["reserved_bytes"]["peak"], allocator.stats().all.reserved_bytes.peak);
    let snapshot = serde_json::to_value(allocator.snapshot()).unwrap();
    let segments = snapshot.as_array().unwrap();
    let blocks = segments.iter().flat_map(|segment| segment["blocks"].as_array().unwrap());
    assert!(blocks.into_iter().any(|block| block["address"] == kept.address()), "{snapshot}");
    let budget = serde_json::to_value(allocator.budget().unwrap()).unwrap();
    assert!(budget.is_object(), "{budget}");
}
