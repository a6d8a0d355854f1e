//! What every generated trace keeps, and what some are there for.

use drystone_trace::metrics::Summary;
use drystone_trace::model::{Kind, Trace};

use super::recorder::{GIB, MIB};
use super::{Extent, GENERATORS, Generator, NoRoom};

fn trace(name: &str, seed: u64) -> Trace {
    let generator = Generator::named(name).unwrap();
    generator.trace(seed, generator.extent).unwrap()
}

#[test]
fn every_trace_is_sound_holds_no_more_than_said_and_frees_all() {
    for generator in &GENERATORS {
        for seed in 0..4 {
            let trace = generator.trace(seed, generator.extent).unwrap();
            assert_eq!(trace.check(), Ok(()), "{} {seed}", generator.name);
            let summary = Summary::of(&trace);
            assert!(summary.events >= generator.extent.events, "{} {seed}", generator.name);
            assert!(
                summary.peak_requested_bytes <= generator.extent.live_bytes,
                "{}",
                generator.name
            );
            // Else the extent would promise a load that the program does not make.
            let least = generator.extent.live_bytes / 2;
            assert!(summary.peak_requested_bytes > least, "{} {seed}", generator.name);
            assert_eq!(summary.left_bytes, 0, "{} {seed}", generator.name);
        }
    }
}

#[test]
fn smaller_extents_are_kept_or_refused() {
    let mut refused = 0;
    for generator in &GENERATORS {
        for live_bytes in [0, 1, 3 * MIB, 900 * MIB, 2 * GIB + 300 * MIB, 20 * GIB] {
            let extent = Extent { events: 3000, live_bytes };
            match generator.trace(5, extent) {
                Ok(trace) => {
                    assert_eq!(trace.check(), Ok(()), "{} {live_bytes}", generator.name);
                    assert!(Summary::of(&trace).peak_requested_bytes <= live_bytes);
                }
                Err(NoRoom { bytes, limit, live_bytes: live }) => {
                    refused += 1;
                    assert!(limit == live_bytes && live + bytes > limit, "{}", generator.name);
                }
            }
        }
    }
    assert!(refused > GENERATORS.len(), "each program has some least extent");
}

#[test]
fn a_trace_follows_from_its_seed() {
    let mut differ = 0;
    for generator in &GENERATORS {
        let extent = Extent { events: 500, ..generator.extent };
        let of = |seed| generator.trace(seed, extent).unwrap().events;
        assert_eq!(of(1), of(1), "{}", generator.name);
        differ += usize::from((2..8).any(|seed| of(seed) != of(1)));
    }
    // All but those whose sizes are fixed.
    assert_eq!(differ, GENERATORS.len() - 4);
}

#[test]
fn sizes_repeat_where_they_should_and_nowhere_else() {
    let distinct = |name| {
        let summary = Summary::of(&trace(name, 1));
        (summary.distinct_sizes, summary.allocations)
    };
    let (sizes, requests) = distinct("random");
    assert!(sizes * 1000 > requests * 999, "{sizes} of {requests}");
    assert_eq!(distinct("few-sizes").0, 20);
    // The weights and two temporaries.
    assert_eq!(distinct("prefetch").0, 3);
}

#[test]
fn crossed_blocks_are_used_on_the_other_stream() {
    let trace = trace("crossed", 1);
    let mut uses = [0; 2];
    for event in trace.events.iter().filter(|event| event.kind == Kind::RecordStream) {
        uses[usize::from(event.stream)] += 1;
    }
    assert!(uses[0] > 1000 && uses[0] == uses[1], "{uses:?}");
    assert_eq!(Summary::of(&self::trace("streams", 1)).streams.len(), 41);
}
