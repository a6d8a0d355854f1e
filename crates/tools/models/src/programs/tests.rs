//! What every generated trace keeps, and what some are there for.

use drystone_trace::metrics::Summary;
use drystone_trace::model::{Kind, Trace};

use super::recorder::{GIB, MIB};
use super::{Extent, NoRoom, PROGRAMS, Program};

fn trace(name: &str, seed: u64) -> Trace {
    let program = Program::named(name).unwrap();
    program.trace(seed, program.extent).unwrap()
}

#[test]
fn every_trace_is_sound_holds_no_more_than_said_and_frees_all() {
    for program in &PROGRAMS {
        for seed in 0..4 {
            let trace = program.trace(seed, program.extent).unwrap();
            assert_eq!(trace.check(), Ok(()), "{} {seed}", program.name);
            let summary = Summary::of(&trace);
            assert!(summary.events >= program.extent.events, "{} {seed}", program.name);
            assert!(summary.peak_requested_bytes <= program.extent.live_bytes, "{}", program.name);
            // Else the extent would promise a load that the program does not make.
            let least = program.extent.live_bytes / 2;
            assert!(summary.peak_requested_bytes > least, "{} {seed}", program.name);
            assert_eq!(summary.left_bytes, 0, "{} {seed}", program.name);
        }
    }
}

#[test]
fn smaller_extents_are_kept_or_refused() {
    let mut refused = 0;
    for program in &PROGRAMS {
        for live_bytes in [0, 1, 3 * MIB, 900 * MIB, 2 * GIB + 300 * MIB, 20 * GIB] {
            let extent = Extent { events: 3000, live_bytes };
            match program.trace(5, extent) {
                Ok(trace) => {
                    assert_eq!(trace.check(), Ok(()), "{} {live_bytes}", program.name);
                    assert!(Summary::of(&trace).peak_requested_bytes <= live_bytes);
                }
                Err(NoRoom { bytes, limit, live_bytes: live }) => {
                    refused += 1;
                    assert!(limit == live_bytes && live + bytes > limit, "{}", program.name);
                }
            }
        }
    }
    assert!(refused > PROGRAMS.len(), "each program has some least extent");
}

#[test]
fn a_trace_follows_from_its_seed() {
    let mut differ = 0;
    for program in &PROGRAMS {
        let extent = Extent { events: 500, ..program.extent };
        let of = |seed| program.trace(seed, extent).unwrap().events;
        assert_eq!(of(1), of(1), "{}", program.name);
        differ += usize::from((2..8).any(|seed| of(seed) != of(1)));
    }
    // All but those whose sizes are fixed.
    assert_eq!(differ, PROGRAMS.len() - 4);
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
