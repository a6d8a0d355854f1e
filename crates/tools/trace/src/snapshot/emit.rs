//! A snapshot into a file's values.
//!
//! The walk over the snapshot is written once, against [`Emit`]; pickles and JSON implement that.
//! Invariant: keys come in PyTorch's order, and a key that a file did not have is not made up.

use std::io::{self, BufWriter, Write};

use serde_json::{Map, Value};

use super::{Action, Entry, PoolId, Segment, Snapshot, StackId, Stacks};
use crate::codec::pickle::Pickler;

mod json;

const BUFFER_BYTES: usize = 64 << 10;

/// Takes values one after the other; keys come right before their values.
pub(crate) trait Emit {
    /// Opens a dictionary.
    fn dict(&mut self) -> io::Result<()>;
    /// Opens a list.
    fn list(&mut self) -> io::Result<()>;
    /// Closes the innermost dictionary or list.
    fn end(&mut self) -> io::Result<()>;
    /// The key of the next value.
    fn key(&mut self, key: &str) -> io::Result<()>;
    /// A value.
    fn text(&mut self, text: &str) -> io::Result<()>;
    /// A value.
    fn int(&mut self, number: i128) -> io::Result<()>;
    /// A value.
    fn float(&mut self, number: f64) -> io::Result<()>;
    /// A value.
    fn bool(&mut self, flag: bool) -> io::Result<()>;
    /// A value.
    fn null(&mut self) -> io::Result<()>;
    /// A value: two numbers.
    fn pair(&mut self, pair: (u32, u32)) -> io::Result<()>;

    /// Names the value that was just closed, so that it can be had again. Nothing by default.
    fn remember(&mut self, _shared: Shared) -> io::Result<()> {
        Ok(())
    }

    /// Emits a value that was named before; `false` if it has to be written out.
    fn recall(&mut self, _shared: Shared) -> io::Result<bool> {
        Ok(false)
    }
}

/// What is worth sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shared {
    Frame(u32),
    Stack(StackId),
}

pub(super) fn pickle(snapshot: &Snapshot, output: impl Write) -> io::Result<()> {
    let mut pickler = Pickler::new(BufWriter::with_capacity(BUFFER_BYTES, output))?;
    walk(snapshot, &mut pickler)?;
    pickler.finish()
}

pub(super) fn json(snapshot: &Snapshot, output: impl Write) -> io::Result<()> {
    let mut writer = json::Writer::new(BufWriter::with_capacity(BUFFER_BYTES, output));
    walk(snapshot, &mut writer)?;
    writer.finish()
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
