//! Real programs under the oracle: the traces this project ships, and those of `../shared` where
//! they are, through every source; with prompt and with late events, and with barely more memory
//! than they need. Of long ones the beginning.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drystone::AllocateError;
use drystone_sim::{SimConfig, SimDevice};

use crate::program::{Block, Lane, Program};
use crate::setup::{ASYNC, MALLOC, Setup, VMM_2MIB};
use crate::sim::{GIB, MIB, watched};

/// Events of a trace that are replayed.
const EVENTS: usize = 60_000;

struct Event {
    op: u8,
    id: u64,
    bytes: u64,
    stream: u64,
    time_ns: u64,
}

fn read(path: &Path) -> Vec<Event> {
    let decoder = zstd::Decoder::new(fs::File::open(path).unwrap()).unwrap();
    let lines = BufReader::new(decoder).lines().map(Result::unwrap);
    let parse = |line: String| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse().unwrap();
        let op = fields[0].as_bytes()[0];
        Event { op, id: number(1), bytes: number(2), stream: number(3), time_ns: number(4) }
    };
    // A comment and the header come first.
    lines.skip(2).take(EVENTS).map(parse).collect()
}

/// The traces by name, those of this project first.
fn traces() -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeMap::new();
    for folder in [root.join("traces"), root.join("../shared/traces")] {
        let Ok(entries) = fs::read_dir(&folder) else {
            println!("skipped: needs traces in {}", folder.display());
            continue;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.ends_with(".csv.zst") {
                found.entry(name).or_insert(path);
            }
        }
    }
    found
}

fn peak_bytes(events: &[Event]) -> u64 {
    let (mut live, mut peak) = (0, 0);
    for event in events {
        match event.op {
            b'a' => live += event.bytes,
            b'f' => live -= event.bytes,
            _ => {}
        }
        peak = peak.max(live);
    }
    peak
}

/// Replays events, and returns how many requests were refused.
fn replay(events: &[Event], sim: &SimDevice, program: &Program) -> usize {
    let mut lanes: HashMap<u64, Lane> = HashMap::from([(0, program.default_lane())]);
    let mut live: HashMap<u64, Block> = HashMap::new();
    let mut refused = 0;
    for (at, event) in events.iter().enumerate() {
        sim.advance_to(event.time_ns);
        let lane = *lanes.entry(event.stream).or_insert_with(|| program.lane());
        match event.op {
            b'a' => match program.try_allocate(lane, event.bytes) {
                Ok(block) => drop(live.insert(event.id, block)),
                Err(AllocateError::OutOfMemory(_)) => refused += 1,
                Err(error) => panic!("event {at}: {error}"),
            },
            b'f' => live.remove(&event.id).into_iter().for_each(|block| program.free(block)),
            b's' => live.get(&event.id).into_iter().for_each(|block| program.use_on(block, lane)),
            b'e' => drop(program.allocator.trim().unwrap()),
            _ => {}
        }
        if at % 10_000 == 0 {
            program.check();
        }
    }
    live.into_values().for_each(|block| program.free(block));
    refused
}

/// Returns how many requests were refused.
fn run(events: &[Event], setup: &Setup, config: SimConfig, limit_bytes: Option<u64>) -> usize {
    let sim = SimDevice::new(config);
    let mut options = setup.options();
    options.limit_bytes = limit_bytes;
    let program = Program::new(Arc::new(sim.clone()), options);
    let refused = replay(events, &sim, &program);
    program.end();
    refused
}

#[test]
fn i10_real_programs_are_safe() {
    let prompt = SimConfig { total_bytes: 80 * GIB, ..watched() };
    let late = SimConfig { event_latency_ns: 20_000, check_kernel_ns: 20_000, ..prompt.clone() };
    for (name, path) in traces() {
        let events = read(&path);
        for setup in [VMM_2MIB, MALLOC, ASYNC] {
            for config in [&prompt, &late] {
                assert_eq!(run(&events, &setup, config.clone(), None), 0, "{name}");
            }
        }
        // Barely more than it needs: the ladder runs, and memory goes from stream to stream.
        let limit_bytes = peak_bytes(&events) + 256 * MIB;
        let refused = run(&events, &VMM_2MIB, late.clone(), Some(limit_bytes));
        assert_eq!(refused, 0, "{name} with {limit_bytes} bytes");
    }
}
