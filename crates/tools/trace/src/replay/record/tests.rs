//! A recorded run must be what the viewer expects: entries that lead to the segments.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::reference::Reference;
use super::{Names, Recorder, record};
use crate::model::{Event, Kind, Trace};
use crate::snapshot::{self, Action, Entry, Snapshot};

/// A trace of allocations and frees of a few sizes, cache flushes among them.
fn trace(seed: u64) -> Trace {
    let mut state = seed;
    let mut next = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut live: Vec<Option<Event>> = vec![None; 16];
    let mut events = Vec::new();
    for time_ns in 0..400u64 {
        let block = next(16) as u32;
        let event = |kind, bytes, stream| Event { time_ns, bytes, block, stream, pool: 0, kind };
        let slot = &mut live[block as usize];
        if next(40) == 0 {
            events.push(Event::bare(time_ns, Kind::EmptyCache));
        } else if let Some(allocation) = slot.take() {
            events.push(Event { time_ns, kind: Kind::Free, ..allocation });
        } else {
            let allocation = event(Kind::Allocate, 512 * (1 + next(4)), next(2) as u16);
            *slot = Some(allocation);
            events.push(allocation);
        }
    }
    events.push(Event::bare(400, Kind::Iteration));
    Trace { events, blocks: 16, streams: 2, pools: 1, ..Trace::default() }
}

/// Plays the entries backwards from the segments, as the viewer does.
fn play_back(snapshot: &Snapshot) {
    let mut live = BTreeMap::new();
    let mut held = BTreeMap::new();
    for segment in &snapshot.segments {
        held.insert(segment.address, segment.bytes);
        let mut at = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, at, "blocks tile their segment");
            at += block.bytes;
            if block.state == snapshot::BlockState::Allocated {
                live.insert(block.address, block.requested_bytes);
            }
        }
        assert_eq!(at, segment.address + segment.bytes);
    }
    for entry in snapshot.device_traces[0].iter().rev() {
        match entry.action {
            Action::Alloc => {
                assert!(live.remove(&entry.address).is_some(), "{entry:?} is not live after");
                assert!(held.contains_key(&entry.address), "{entry:?} lies in no segment");
            }
            Action::FreeRequested => {
                assert!(live.insert(entry.address, entry.bytes).is_none(), "{entry:?} is live");
            }
            Action::SegmentAlloc => {
                assert_eq!(held.remove(&entry.address), Some(entry.bytes), "{entry:?}");
            }
            Action::SegmentFree => {
                assert!(held.insert(entry.address, entry.bytes).is_none(), "{entry:?}");
            }
            _ => {}
        }
    }
    assert!(live.is_empty() && held.is_empty(), "something was there before: {live:?} {held:?}");
}

#[test]
fn entries_lead_to_the_segments() {
    for seed in 1..=20 {
        println!("seed {seed}");
        let snapshot = record(&trace(seed), &mut Reference::new(1 << 30)).expect("a layout");
        play_back(&snapshot);
        let marks = |name| snapshot.annotations.iter().filter(|note| note["name"] == name).count();
        let flushes = trace(seed).events.iter().filter(|e| e.kind == Kind::EmptyCache).count();
        assert_eq!((marks("ProfilerStep#0"), marks("torch.cuda.empty_cache")), (2, 2 * flushes));
    }
}

#[test]
fn refusals_are_written_down_and_leave_nothing() {
    let snapshot = record(&trace(3), &mut Reference::new(4096)).expect("a layout");
    let count = |action| snapshot.device_traces[0].iter().filter(|e| e.action == action).count();
    assert!(count(Action::OutOfMemory) > 0);
    assert_eq!(count(Action::FreeRequested), count(Action::FreeCompleted));
    play_back(&snapshot);
}

#[test]
fn a_pending_block_loses_its_last_completion_only() {
    let trace = trace(1);
    let entry = |action, address| Entry {
        action,
        address,
        bytes: 1,
        stream: 0,
        time_us: 0,
        pool: None,
        stack: None,
        note: None,
    };
    let mut recorder = Recorder {
        names: Names { trace: &trace },
        entries: vec![
            entry(Action::FreeCompleted, 7),
            entry(Action::FreeCompleted, 7),
            entry(Action::FreeCompleted, 8),
            entry(Action::FreeRequested, 7),
        ],
        held: Vec::new(),
        reserved_bytes: 0,
        stacks: HashMap::new(),
        annotations: Vec::new(),
        iterations: 0,
        iteration_start_us: 0,
    };
    recorder.take_back_completions(HashSet::from([7]));
    let left: Vec<_> = recorder.entries.iter().map(|e| (e.action, e.address)).collect();
    let completed = Action::FreeCompleted;
    assert_eq!(left, [(completed, 7), (completed, 8), (Action::FreeRequested, 7)]);
}
