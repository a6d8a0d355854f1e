//! What happened on each device, entry by entry, and the program's annotations.
//!
//! Invariant: equal notes of entries have one number. What is not known is counted and left out.

use serde_json::Map;

use super::fault::{Fault, Read, missing};
use super::reader::{Part, Reader};
use crate::codec::error::Problem;
use crate::codec::graph::{Id, Node};
use crate::snapshot::{Action, Entry};

impl Reader<'_, '_> {
    pub(super) fn device_traces(&mut self, value: Id) -> Read<()> {
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
            match entry {
                Some(entry) => entries.push(entry),
                None => self.snapshot.unknown_entries += 1,
            }
        }
        entries.shrink_to_fit();
        Ok(entries)
    }

    /// `None` for an action that is not known.
    fn entry(&mut self, value: Id) -> Read<Option<Entry>> {
        let (mut action, mut address, mut bytes, mut time_us) = (None, None, None, 0);
        let (mut stream, mut pool, mut stack) = (0, None, None);
        let mut note = Vec::new();
        for (key, value) in self.entries(value)? {
            self.plain.spend()?;
            let name = self.text(key)?;
            let fault = |fault: Fault| fault.at(String::from_utf8_lossy(name));
            match name {
                b"action" => match self.action(value).map_err(fault)? {
                    Some(known) => action = Some(known),
                    None => return Ok(None),
                },
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
        Ok(Some(Entry {
            action: action.ok_or_else(|| missing("action"))?,
            address: address.ok_or_else(|| missing("addr"))?,
            bytes: bytes.ok_or_else(|| missing("size"))?,
            stream,
            time_us,
            pool,
            stack,
            note,
        }))
    }

    fn action(&self, value: Id) -> Read<Option<Action>> {
        let name = self.text(value)?;
        Ok(Action::ALL.into_iter().find(|action| action.name().as_bytes() == name))
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

    pub(super) fn annotations(&mut self, value: Id) -> Read<()> {
        for (index, note) in self.list(value)?.enumerate() {
            let note = self.plain.value(note).map_err(|f| f.at(format_args!("[{index}]")))?;
            self.snapshot.annotations.push(note);
        }
        Ok(())
    }
}
