//! What the agreement test and the tool that measures the real allocator share: where traces come
//! from, synthetic ones, and the columns of the table of figures.
//!
//! Invariant: a name stands for the same trace on both sides.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use drystone_driver::Call;
use drystone_sim::Rng;
use drystone_trace::codec::{Limits, ReadError, read_path};
use drystone_trace::model::{Event, Kind, Trace};

/// Driver calls that the table has a column for, in this order.
pub const CALLS: [Call; 14] = [
    Call::Malloc,
    Call::Free,
    Call::Reserve,
    Call::Unreserve,
    Call::Create,
    Call::Release,
    Call::Map,
    Call::SetAccess,
    Call::Unmap,
    Call::CreateEvent,
    Call::Record,
    Call::Query,
    Call::SynchronizeEvent,
    Call::SynchronizeStream,
];

/// One run of the real allocator: a row of `torch_peaks.csv`.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Row {
    pub trace: String,
    pub configuration: String,
    pub capacity_bytes: u64,
    pub peak_requested_bytes: u64,
    pub device_peak_bytes: u64,
    pub refused: u64,
    pub retries: u64,
    pub torch: String,
    /// One number for each of [`CALLS`], with a blank between them.
    pub calls: String,
}

pub fn table_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch_peaks.csv")
}

/// Folders that may hold recorded traces: the repository's own, then the shared ones beside it.
pub fn trace_folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    ["traces", "../shared/traces", "../shared/traces/public", "../shared/traces/minimalloc"]
        .map(|folder| root.join(folder))
        .into()
}

/// Names of the synthetic traces.
pub const SYNTHETIC: [&str; 4] =
    ["synthetic_1_stream", "synthetic_2_streams", "synthetic_3_streams", "synthetic_5_streams"];

/// The trace of a name; `None` where it is not at hand.
pub fn find(name: &str) -> Result<Option<Trace>, ReadError> {
    if let Some(streams) = name.strip_prefix("synthetic_").and_then(|rest| rest.get(..1)) {
        return Ok(streams.parse().ok().map(|streams| synthetic(name, streams)));
    }
    let file = format!("{name}.csv.zst");
    let mut paths = trace_folders().into_iter().map(|folder| folder.join(&file));
    match paths.find(|path| path.exists()) {
        Some(path) => Ok(read_path(&path, &Limits::default())?.into_iter().next()),
        None => Ok(None),
    }
}

/// A random program: 60 sizes that come again and again and some that do not, every stream used,
/// a third of the blocks used on other streams too, and now and then an emptied cache.
pub fn synthetic(name: &str, streams: u16) -> Trace {
    const OPERATIONS: u64 = 20_000;
    const LIMIT_BYTES: u64 = 4 << 30;
    let mut rng = Rng::new(u64::from(streams));
    let usual: Vec<u64> = (0..60).map(|_| size(&mut rng)).collect();
    let mut live: Vec<Event> = Vec::new();
    let mut free = BTreeSet::new();
    let mut trace = Trace { name: name.to_owned(), streams, pools: 1, ..Trace::default() };
    let mut live_bytes = 0;
    for step in 0..OPERATIONS {
        // The program needs now half, now all of its memory.
        let room = if step / 2000 % 2 == 0 { LIMIT_BYTES / 2 } else { LIMIT_BYTES };
        let blank = Event::bare(step * 1000, Kind::Free);
        if live.is_empty() || (live_bytes < room && live.len() < 2000 && rng.chance(55)) {
            let again = rng.chance(70);
            let index = rng.below(usual.len() as u64) as usize;
            let bytes = if again { usual[index] } else { size(&mut rng) };
            let is_side = rng.chance(40);
            let stream = if is_side { rng.below(u64::from(streams)) as u16 } else { 0 };
            let block = free.pop_first().unwrap_or(trace.blocks);
            trace.blocks = trace.blocks.max(block + 1);
            let event = Event { bytes, block, stream, kind: Kind::Allocate, ..blank };
            live_bytes += bytes;
            live.push(event);
            trace.events.push(event);
        } else if rng.below(400) == 0 {
            trace.events.push(Event { kind: Kind::EmptyCache, ..blank });
        } else {
            let index = rng.below(live.len() as u64) as usize;
            let event = Event { time_ns: blank.time_ns, ..live.swap_remove(index) };
            while rng.chance(25) {
                let stream = rng.below(u64::from(streams)) as u16;
                trace.events.push(Event { stream, kind: Kind::RecordStream, ..event });
            }
            live_bytes -= event.bytes;
            free.insert(event.block);
            trace.events.push(Event { kind: Kind::Free, ..event });
        }
    }
    trace
}

fn size(rng: &mut Rng) -> u64 {
    const MIB: u64 = 1 << 20;
    let ranges = [(1, 4096), (1, MIB), (MIB, 12 * MIB), (10 * MIB, 150 * MIB)];
    let (low, high) = ranges[rng.below(ranges.len() as u64) as usize];
    low + rng.below(high - low)
}
