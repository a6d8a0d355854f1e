//! A snapshot into a file's values.
//!
//! The walk over the snapshot is written once, against [`Emit`]; pickles and JSON implement that.
//! Invariant: keys come in PyTorch's order, and a key that a file did not have is not made up.

use std::io::{self, BufWriter, Write};

use serde_json::{Map, Value};

use crate::codec::emit::{Emit, Shared};
use crate::codec::{json, pickle};
use crate::snapshot::{Action, Entry, PoolId, Segment, Snapshot, StackId, Stacks};

const BUFFER_BYTES: usize = 64 << 10;

impl Snapshot {
    /// Writes it as PyTorch does, to open in MemoryViz: a pickle of protocol 2.
    pub fn write_pickle(&self, output: impl Write) -> io::Result<()> {
        let mut to = pickle::Writer::new(BufWriter::with_capacity(BUFFER_BYTES, output))?;
        walk(self, &mut to)?;
        to.finish()
    }

    /// Writes it as JSON, pairs as lists of two. MemoryViz reads that as well.
    pub fn write_json(&self, output: impl Write) -> io::Result<()> {
        let mut to = json::Writer::new(BufWriter::with_capacity(BUFFER_BYTES, output));
        walk(self, &mut to)?;
        to.finish()
    }
}

fn walk(snapshot: &Snapshot, to: &mut impl Emit) -> io::Result<()> {
    to.dict()?;
    to.key("segments")?;
    to.list()?;
    for part in &snapshot.segments {
        segment(part, &snapshot.stacks, to)?;
    }
    to.end()?;
    to.key("device_traces")?;
    to.list()?;
    for trace in &snapshot.device_traces {
        to.list()?;
        for part in trace {
            entry(part, snapshot, to)?;
        }
        to.end()?;
    }
    to.end()?;
    if !snapshot.settings.is_null() {
        to.key("allocator_settings")?;
        value(&snapshot.settings, to)?;
    }
    to.key("external_annotations")?;
    to.list()?;
    for note in &snapshot.annotations {
        value(note, to)?;
    }
    to.end()?;
    to.end()
}

fn segment(segment: &Segment, stacks: &Stacks, to: &mut impl Emit) -> io::Result<()> {
    to.dict()?;
    int(to, "device", segment.device)?;
    int(to, "address", segment.address)?;
    int(to, "total_size", segment.bytes)?;
    int(to, "allocated_size", segment.allocated_bytes)?;
    int(to, "active_size", segment.active_bytes)?;
    int(to, "requested_size", segment.requested_bytes)?;
    int(to, "stream", segment.stream)?;
    to.key("segment_type")?;
    to.text(if segment.is_small { "small" } else { "large" })?;
    pool(to, "segment_pool_id", segment.pool)?;
    if let Some(is_expandable) = segment.is_expandable {
        to.key("is_expandable")?;
        to.bool(is_expandable)?;
    }
    frames(segment.stack, stacks, to)?;
    to.key("blocks")?;
    to.list()?;
    for block in &segment.blocks {
        to.dict()?;
        int(to, "address", block.address)?;
        int(to, "size", block.bytes)?;
        int(to, "requested_size", block.requested_bytes)?;
        to.key("state")?;
        to.text(block.state.name())?;
        frames(block.stack, stacks, to)?;
        to.end()?;
    }
    to.end()?;
    to.end()
}

fn entry(entry: &Entry, snapshot: &Snapshot, to: &mut impl Emit) -> io::Result<()> {
    to.dict()?;
    to.key("action")?;
    to.text(entry.action.name())?;
    let is_oom = entry.action == Action::OutOfMemory;
    int(to, if is_oom { "device_free" } else { "addr" }, entry.address)?;
    int(to, "size", entry.bytes)?;
    int(to, "stream", entry.stream)?;
    int(to, "time_us", entry.time_us)?;
    pool(to, "pool_id", entry.pool)?;
    let note = entry.note.and_then(|note| snapshot.notes.get(note as usize));
    for (key, part) in note.iter().flat_map(|note| note.iter()) {
        to.key(key)?;
        value(part, to)?;
    }
    frames(entry.stack, &snapshot.stacks, to)?;
    to.end()
}

fn frames(stack: Option<StackId>, stacks: &Stacks, to: &mut impl Emit) -> io::Result<()> {
    let Some(stack) = stack else { return Ok(()) };
    to.key("frames")?;
    if to.recall(Shared::Stack(stack))? {
        return Ok(());
    }
    to.list()?;
    for number in stacks.frame_numbers(stack) {
        let Some(frame) = stacks.frame(*number) else { continue };
        if to.recall(Shared::Frame(*number))? {
            continue;
        }
        to.dict()?;
        to.key("filename")?;
        to.text(&frame.filename)?;
        int(to, "line", frame.line)?;
        to.key("name")?;
        to.text(&frame.name)?;
        for (key, part) in &frame.more {
            to.key(key)?;
            value(part, to)?;
        }
        to.end()?;
        to.remember(Shared::Frame(*number))?;
    }
    to.end()?;
    to.remember(Shared::Stack(stack))
}

fn int(to: &mut impl Emit, key: &str, number: impl Into<i128>) -> io::Result<()> {
    to.key(key)?;
    to.int(number.into())
}

fn pool(to: &mut impl Emit, key: &str, pool: Option<PoolId>) -> io::Result<()> {
    let Some(PoolId(graph, user)) = pool else { return Ok(()) };
    to.key(key)?;
    to.pair((graph, user))
}

/// Emits settings, annotations and notes. Recurses as deep as the value, which readers limit.
fn value(value: &Value, to: &mut impl Emit) -> io::Result<()> {
    match value {
        Value::Null => to.null(),
        Value::Bool(flag) => to.bool(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), ..) => to.int(number.into()),
            (_, Some(number), _) => to.int(number.into()),
            (.., number) => to.float(number.unwrap_or(f64::NAN)),
        },
        Value::String(text) => to.text(text),
        Value::Array(items) => {
            to.list()?;
            items.iter().try_for_each(|item| self::value(item, to))?;
            to.end()
        }
        Value::Object(map) => dict(map, to),
    }
}

fn dict(map: &Map<String, Value>, to: &mut impl Emit) -> io::Result<()> {
    to.dict()?;
    for (key, item) in map {
        to.key(key)?;
        value(item, to)?;
    }
    to.end()
}
