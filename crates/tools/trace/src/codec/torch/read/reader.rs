//! Looking at a value: as a list, a text, a number.
//!
//! Invariant: a value of another kind is an error that says what was found and what was expected.

use std::collections::HashMap;

use super::fault::{Fault, Read};
use super::plain::Plain;
use crate::codec::error::{Problem, quote};
use crate::codec::graph::{Graph, Id, Node};
use crate::codec::limits::Limits;
use crate::snapshot::{DistinctStacks, PoolId, Snapshot};

/// A value that is no stack or frame, so far.
pub(super) const UNKNOWN: u32 = u32::MAX;

/// One key or value of an entry's note, comparable by content.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Text(u32),
    Other(Id),
}

pub(super) struct Reader<'g, 'f> {
    pub(super) graph: &'g Graph<'f>,
    pub(super) limits: &'g Limits,
    /// But for its stacks.
    pub(super) snapshot: Snapshot,
    pub(super) stacks: DistinctStacks,
    pub(super) entries: u64,
    pub(super) plain: Plain<'g, 'f>,
    /// By value: the number of the stack or frame that it has become.
    pub(super) known: Vec<u32>,
    pub(super) notes: HashMap<Vec<(Part, Part)>, u32>,
    /// Reused for every stack and note.
    pub(super) numbers: Vec<u32>,
}

impl<'g, 'f> Reader<'g, 'f> {
    /// Over the values of a file.
    pub(super) fn new(graph: &'g Graph<'f>, limits: &'g Limits) -> Self {
        Self {
            graph,
            limits,
            snapshot: Snapshot::default(),
            stacks: DistinctStacks::default(),
            entries: 0,
            plain: Plain::new(graph),
            known: vec![UNKNOWN; graph.len()],
            notes: HashMap::new(),
            numbers: Vec::new(),
        }
    }

    pub(super) fn list(&self, value: Id) -> Read<impl Iterator<Item = Id> + use<'g, 'f>> {
        match self.graph.node(value) {
            Node::List(items) | Node::Tuple(items) => Ok(self.graph.items(items)),
            _ => Err(self.wrong(value, "a list")),
        }
    }

    pub(super) fn entries(&self, value: Id) -> Read<impl Iterator<Item = (Id, Id)> + use<'g, 'f>> {
        match self.graph.node(value) {
            Node::Dict(items) => Ok(self.graph.entries(items)),
            _ => Err(self.wrong(value, "a dictionary")),
        }
    }

    /// A dictionary's entries, by name.
    pub(super) fn dict(&mut self, value: Id) -> Read<Vec<(&'g [u8], Id)>> {
        let mut named = Vec::new();
        for (key, value) in self.entries(value)? {
            self.plain.spend()?;
            named.push((self.text(key)?, value));
        }
        Ok(named)
    }

    pub(super) fn text(&self, value: Id) -> Read<&'g [u8]> {
        match self.graph.node(value) {
            Node::Text(place) => Ok(self.graph.bytes(place)),
            _ => Err(self.wrong(value, "a text")),
        }
    }

    /// A size, or anything else that is never negative.
    pub(super) fn number(&self, value: Id) -> Read<u64> {
        match self.graph.node(value) {
            Node::Int(number) => u64::try_from(number).ok(),
            Node::Unsigned(number) => Some(number),
            _ => None,
        }
        .ok_or_else(|| self.wrong(value, "a whole number from 0 to 2^64 - 1"))
    }

    /// A stream or address: 64 bits, which some writers take for signed.
    pub(super) fn handle(&self, value: Id) -> Read<u64> {
        match self.graph.node(value) {
            Node::Int(number) => Ok(number as u64),
            _ => self.number(value),
        }
    }

    pub(super) fn small(&self, value: Id) -> Read<u32> {
        let number = u32::try_from(self.number(value)?);
        number.map_err(|_| self.wrong(value, "a whole number from 0 to 2^32 - 1"))
    }

    pub(super) fn time(&self, value: Id) -> Read<i64> {
        match self.graph.node(value) {
            Node::Int(number) => Ok(number),
            // Saturates; a time this far off is as wrong as any other.
            Node::Float(number) => Ok(number as i64),
            _ => Err(self.wrong(value, "a time in microseconds")),
        }
    }

    pub(super) fn flag(&self, value: Id) -> Read<bool> {
        match self.graph.node(value) {
            Node::Bool(flag) => Ok(flag),
            Node::Int(number @ 0..=1) => Ok(number == 1),
            _ => Err(self.wrong(value, "true or false")),
        }
    }

    pub(super) fn pool(&self, value: Id) -> Read<PoolId> {
        let mut items = self.list(value)?;
        match (items.next(), items.next(), items.next()) {
            (Some(graph), Some(user), None) => Ok(PoolId(self.small(graph)?, self.small(user)?)),
            _ => Err(self.wrong(value, "a pair of numbers")),
        }
    }

    pub(super) fn wrong(&self, value: Id, wants: &'static str) -> Fault {
        let found = match self.graph.node(value) {
            Node::Null => "None".to_owned(),
            Node::Bool(flag) => flag.to_string(),
            Node::Int(number) => number.to_string(),
            Node::Unsigned(number) => number.to_string(),
            Node::Float(number) => number.to_string(),
            Node::Text(place) => format!("`{}`", quote(self.graph.bytes(place))),
            Node::Bytes(_) => "bytes".to_owned(),
            Node::List(_) => "a list".to_owned(),
            Node::Tuple(_) => "a tuple".to_owned(),
            Node::Dict(_) => "a dictionary".to_owned(),
        };
        Problem::Value { found, wants }.into()
    }
}
