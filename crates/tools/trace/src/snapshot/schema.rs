//! The values of a file into a [`Snapshot`].
//!
//! Invariants: nothing recurses; what is shared in the file is looked at once (stacks, notes) or
//! counts against a budget that no file written by PyTorch can exhaust, so that a small file
//! cannot unfold into a large snapshot. An error names the value by its path.

use std::collections::HashMap;
use std::fmt::{Display, Write as _};

use serde_json::Map;

use super::stacks::{Frame, StackId};
use super::{Action, Block, BlockState, Entry, Segment, Snapshot};
use crate::codec::graph::{Graph, Id, Node};
use crate::codec::{Limits, Place, Problem, error::quote};

mod look;
mod plain;

use plain::Plain;

type Read<T> = Result<T, Fault>;

/// A problem, and the path to the value that has it, innermost step first.
pub(super) struct Fault {
    problem: Problem,
    path: Vec<String>,
}

impl Fault {
    fn at(mut self, step: impl Display) -> Self {
        self.path.push(step.to_string());
        self
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self { problem, path: Vec::new() }
    }
}

/// Reads a snapshot; `root` is its outermost value.
pub(crate) fn read(
    graph: &Graph<'_>,
    root: Id,
    limits: &Limits,
) -> Result<Snapshot, (Place, Problem)> {
    Reader::new(graph, limits).snapshot(root).map_err(|fault| {
        if fault.path.is_empty() {
            return (Place::File, fault.problem);
        }
        let mut path = String::new();
        for step in fault.path.iter().rev() {
            let dot = if path.is_empty() || step.starts_with('[') { "" } else { "." };
            // Writing to a text cannot fail.
            let _ = write!(path, "{dot}{step}");
        }
        (Place::Item(path), fault.problem)
    })
}

/// A value that is no stack or frame, so far.
const UNKNOWN: u32 = u32::MAX;

/// One key or value of an entry's note, comparable by content.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Part {
    Text(u32),
    Other(Id),
}

struct Reader<'g, 'f> {
    graph: &'g Graph<'f>,
    limits: &'g Limits,
    snapshot: Snapshot,
    entries: u64,
    plain: Plain<'g, 'f>,
    /// By value: the number of the stack or frame that it has become.
    known: Vec<u32>,
    notes: HashMap<Vec<(Part, Part)>, u32>,
    /// Reused for every stack and note.
    numbers: Vec<u32>,
}

impl<'g, 'f> Reader<'g, 'f> {
    fn new(graph: &'g Graph<'f>, limits: &'g Limits) -> Self {
        Self {
            graph,
            limits,
            snapshot: Snapshot::default(),
            entries: 0,
            plain: Plain::new(graph),
            known: vec![UNKNOWN; graph.len()],
            notes: HashMap::new(),
            numbers: Vec::new(),
        }
    }

    fn snapshot(mut self, root: Id) -> Read<Snapshot> {
        // `torch.cuda.memory_snapshot()` returns the list of segments alone.
        if let Node::List(_) = self.graph.node(root) {
            self.segments(root).map_err(|fault| fault.at("segments"))?;
            return Ok(self.snapshot);
        }
        for (key, value) in self.dict(root)? {
            match key {
                b"segments" => self.segments(value),
                b"device_traces" => self.device_traces(value),
                b"allocator_settings" => {
                    self.plain.value(value).map(|value| self.snapshot.settings = value)
                }
                b"external_annotations" => self.annotations(value),
                _ => Ok(()),
            }
            .map_err(|fault| fault.at(String::from_utf8_lossy(key)))?;
        }
        Ok(self.snapshot)
    }

    fn segments(&mut self, value: Id) -> Read<()> {
        for (index, segment) in self.list(value)?.enumerate() {
            self.plain.spend()?;
            let segment = self.segment(segment).map_err(|f| f.at(format_args!("[{index}]")))?;
            self.snapshot.segments.push(segment);
        }
        Ok(())
    }

    fn segment(&mut self, value: Id) -> Read<Segment> {
        let mut found = Segment {
            device: 0,
            address: 0,
            bytes: 0,
            allocated_bytes: 0,
            active_bytes: 0,
            requested_bytes: 0,
            stream: 0,
            is_small: false,
            pool: None,
            is_expandable: None,
            stack: None,
            blocks: Vec::new(),
        };
        let (mut address, mut bytes, mut blocks) = (None, None, None);
        for (key, value) in self.dict(value)? {
            let fault = |fault: Fault| fault.at(String::from_utf8_lossy(key));
            match key {
                b"device" => found.device = self.small(value).map_err(fault)?,
                b"address" => address = Some(self.number(value).map_err(fault)?),
                b"total_size" => bytes = Some(self.number(value).map_err(fault)?),
                b"allocated_size" => found.allocated_bytes = self.number(value).map_err(fault)?,
                b"active_size" => found.active_bytes = self.number(value).map_err(fault)?,
                b"requested_size" => found.requested_bytes = self.number(value).map_err(fault)?,
                b"stream" => found.stream = self.handle(value).map_err(fault)?,
                b"segment_type" => found.is_small = self.text(value).map_err(fault)? == b"small",
                b"segment_pool_id" => found.pool = Some(self.pool(value).map_err(fault)?),
                b"is_expandable" => found.is_expandable = Some(self.flag(value).map_err(fault)?),
                b"frames" => found.stack = Some(self.stack(value).map_err(fault)?),
                b"blocks" => blocks = Some(value),
                _ => {}
            }
        }
        found.address = address.ok_or_else(|| missing("address"))?;
        found.bytes = bytes.ok_or_else(|| missing("total_size"))?;
        let end = end_of(found.address, found.bytes).map_err(|f| f.at("total_size"))?;
        let mut at = found.address;
        let blocks = blocks.ok_or_else(|| missing("blocks"))?;
        for (index, block) in self.list(blocks).map_err(|f| f.at("blocks"))?.enumerate() {
            self.plain.spend()?;
            let block = self.block(block, at, end);
            let block = block.map_err(|f| f.at(format_args!("[{index}]")).at("blocks"))?;
            at = block.address + block.bytes;
            found.blocks.push(block);
        }
        Ok(found)
    }

    /// A block that begins at `at` or later and ends by `end`. Old files have no addresses.
    fn block(&mut self, value: Id, at: u64, end: u64) -> Read<Block> {
        let (mut address, mut bytes, mut requested, mut state) = (at, None, None, None);
        let mut stack = None;
        for (key, value) in self.dict(value)? {
            let fault = |fault: Fault| fault.at(String::from_utf8_lossy(key));
            match key {
                b"address" => address = self.number(value).map_err(fault)?,
                b"size" => bytes = Some(self.number(value).map_err(fault)?),
                b"requested_size" => requested = Some(self.number(value).map_err(fault)?),
                b"state" => state = Some(self.state(value).map_err(fault)?),
                b"frames" => stack = Some(self.stack(value).map_err(fault)?),
                _ => {}
            }
        }
        let bytes = bytes.ok_or_else(|| missing("size"))?;
        let state = state.ok_or_else(|| missing("state"))?;
        if address < at || end_of(address, bytes)? > end {
            let wants = "a block behind the one before it and inside its segment";
            return Err(Problem::Value { found: format!("{address:#x}"), wants }.into());
        }
        Ok(Block { address, bytes, requested_bytes: requested.unwrap_or(bytes), state, stack })
    }

    fn state(&self, value: Id) -> Read<BlockState> {
        Ok(match self.text(value)? {
            b"active_allocated" => BlockState::Allocated,
            b"active_pending_free" | b"active_awaiting_free" => BlockState::PendingFree,
            b"inactive" => BlockState::Inactive,
            other => {
                let wants = "active_allocated, active_pending_free or inactive";
                return Err(Problem::Value { found: format!("`{}`", quote(other)), wants }.into());
            }
        })
    }

    fn device_traces(&mut self, value: Id) -> Read<()> {
        for (device, trace) in self.list(value)?.enumerate() {
            self.plain.spend()?;
            let trace = self.trace(trace).map_err(|f| f.at(format_args!("[{device}]")))?;
            self.snapshot.device_traces.push(trace);
        }
        Ok(())
    }

    fn trace(&mut self, value: Id) -> Read<Vec<Entry>> {
        let mut entries = Vec::new();
        for (index, entry) in self.list(value)?.enumerate() {
            self.plain.spend()?;
            self.entries += 1;
            if self.entries > self.limits.events {
                return Err(Problem::TooManyEvents { limit: self.limits.events }.into());
            }
            let entry = self.entry(entry).map_err(|f| f.at(format_args!("[{index}]")))?;
            entries.push(entry);
        }
        entries.shrink_to_fit();
        Ok(entries)
    }

    fn entry(&mut self, value: Id) -> Read<Entry> {
        let (mut action, mut address, mut bytes, mut time_us) = (None, None, None, 0);
        let (mut stream, mut pool, mut stack) = (0, None, None);
        let mut note = Vec::new();
        for (key, value) in self.entries(value)? {
            self.plain.spend()?;
            let name = self.text(key)?;
            let fault = |fault: Fault| fault.at(String::from_utf8_lossy(name));
            match name {
                b"action" => action = Some(self.action(value).map_err(fault)?),
                b"addr" | b"device_free" => address = Some(self.handle(value).map_err(fault)?),
                b"size" => bytes = Some(self.number(value).map_err(fault)?),
                b"stream" => stream = self.handle(value).map_err(fault)?,
                b"time_us" => time_us = self.time(value).map_err(fault)?,
                b"pool_id" => pool = Some(self.pool(value).map_err(fault)?),
                b"frames" => stack = Some(self.stack(value).map_err(fault)?),
                _ => note.push((key, value)),
            }
        }
        let note = self.note(note)?;
        Ok(Entry {
            action: action.ok_or_else(|| missing("action"))?,
            address: address.ok_or_else(|| missing("addr"))?,
            bytes: bytes.ok_or_else(|| missing("size"))?,
            stream,
            time_us,
            pool,
            stack,
            note,
        })
    }

    fn action(&self, value: Id) -> Read<Action> {
        let name = self.text(value)?;
        let action = Action::ALL.into_iter().find(|action| action.name().as_bytes() == name);
        action.ok_or_else(|| Problem::UnknownOp { found: quote(name) }.into())
    }

    /// The number of a note with these keys and values, new or known.
    fn note(&mut self, parts: Vec<(Id, Id)>) -> Read<Option<u32>> {
        if parts.is_empty() {
            return Ok(None);
        }
        let key = parts.iter().map(|(key, value)| (self.part(*key), self.part(*value))).collect();
        if let Some(&note) = self.notes.get(&key) {
            return Ok(Some(note));
        }
        let mut map = Map::new();
        for (key, value) in parts {
            map.insert(self.plain.text(key)?.to_string(), self.plain.value(value)?);
        }
        let note = self.snapshot.notes.len() as u32;
        self.snapshot.notes.push(map);
        self.notes.insert(key, note);
        Ok(Some(note))
    }

    fn part(&mut self, value: Id) -> Part {
        match self.graph.node(value) {
            Node::Text(_) => Part::Text(self.plain.number(value)),
            _ => Part::Other(value),
        }
    }

    fn annotations(&mut self, value: Id) -> Read<()> {
        for (index, note) in self.list(value)?.enumerate() {
            let note = self.plain.value(note).map_err(|f| f.at(format_args!("[{index}]")))?;
            self.snapshot.annotations.push(note);
        }
        Ok(())
    }

    fn stack(&mut self, value: Id) -> Read<StackId> {
        let known = self.known[value as usize];
        if known != UNKNOWN {
            return Ok(StackId(known));
        }
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.clear();
        for (index, frame) in self.list(value)?.enumerate() {
            self.plain.spend()?;
            let number = self.frame(frame).map_err(|f| f.at(format_args!("[{index}]")))?;
            numbers.push(number);
        }
        let stack = self.snapshot.stacks.add(&numbers);
        self.numbers = numbers;
        self.known[value as usize] = stack.0;
        Ok(stack)
    }

    fn frame(&mut self, value: Id) -> Read<u32> {
        let known = self.known[value as usize];
        if known != UNKNOWN {
            return Ok(known);
        }
        let mut frame = Frame::default();
        for (key, value) in self.entries(value)? {
            self.plain.spend()?;
            let name = self.text(key)?;
            let fault = |fault: Fault| fault.at(String::from_utf8_lossy(name));
            match name {
                b"filename" => frame.filename = self.plain.text(value).map_err(fault)?,
                b"name" => frame.name = self.plain.text(value).map_err(fault)?,
                b"line" => frame.line = self.number(value).map_err(fault)?,
                _ => {
                    let key = self.plain.text(key)?.to_string();
                    frame.more.insert(key, self.plain.value(value).map_err(fault)?);
                }
            }
        }
        let number = self.snapshot.stacks.add_frame(frame);
        self.known[value as usize] = number;
        Ok(number)
    }
}

fn missing(key: &'static str) -> Fault {
    Fault::from(Problem::Value { found: "missing".to_owned(), wants: "a value" }).at(key)
}

fn end_of(address: u64, bytes: u64) -> Read<u64> {
    let wants = "a size that ends below 2^64";
    let end = address.checked_add(bytes);
    end.ok_or_else(|| Problem::Value { found: bytes.to_string(), wants }.into())
}
