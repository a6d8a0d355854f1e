//! Values whose meaning does not matter here (settings, annotations, notes) into JSON values.
//!
//! Invariants: the work and the memory over a whole file stay within a budget taken from the
//! file's size, however often the file repeats itself; nesting is limited; no recursion.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::fault::Read;
use crate::codec::error::Problem;
use crate::codec::graph::{Graph, Id, Node};

/// Deepest nesting of settings and annotations; real ones have 2.
const MOST_LEVELS: usize = 64;

pub(super) struct Plain<'g, 'f> {
    graph: &'g Graph<'f>,
    /// How many more values may be looked at.
    values: usize,
    /// How many more bytes of text may be copied.
    bytes: usize,
    /// Texts, each content once.
    texts: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    by_value: HashMap<Id, u32>,
}

/// A container that is being filled.
struct Open {
    into: Value,
    /// Its key in the dictionary around it.
    key: String,
    /// What is still to come; keys are empty in lists.
    rest: std::vec::IntoIter<(String, Id)>,
}

impl<'g, 'f> Plain<'g, 'f> {
    pub(super) fn new(graph: &'g Graph<'f>) -> Self {
        Self {
            graph,
            // Files written by PyTorch look at every item once.
            values: graph.children().saturating_mul(2).saturating_add(4096),
            bytes: graph.text_bytes().saturating_mul(8).saturating_add(1 << 20),
            texts: Vec::new(),
            numbers: HashMap::new(),
            by_value: HashMap::new(),
        }
    }

    /// Counts one value that is looked at.
    pub(super) fn spend(&mut self) -> Read<()> {
        match self.values.checked_sub(1) {
            Some(left) => self.values = left,
            None => return Err(Problem::Unfolds.into()),
        }
        Ok(())
    }

    /// The number of a text's content; 0 of what is no text.
    pub(super) fn number(&mut self, value: Id) -> u32 {
        if let Some(&number) = self.by_value.get(&value) {
            return number;
        }
        let Node::Text(place) = self.graph.node(value) else { return 0 };
        let text: Arc<str> = String::from_utf8_lossy(self.graph.bytes(place)).into();
        let next = self.texts.len() as u32;
        let number = *self.numbers.entry(Arc::clone(&text)).or_insert(next);
        if number == next {
            self.texts.push(text);
        }
        self.by_value.insert(value, number);
        number
    }

    /// A text, shared with all equal ones.
    pub(super) fn text(&mut self, value: Id) -> Read<Arc<str>> {
        let Node::Text(_) = self.graph.node(value) else {
            let wants = "a text";
            return Err(Problem::Value { found: "something else".to_owned(), wants }.into());
        };
        let number = self.number(value);
        Ok(Arc::clone(&self.texts[number as usize]))
    }

    /// The value as JSON: tuples become lists, bytes become texts, other keys become texts.
    pub(super) fn value(&mut self, value: Id) -> Read<Value> {
        let mut open = match self.start(value, String::new())? {
            Ok(value) => return Ok(value),
            Err(container) => vec![container],
        };
        while let Some(top) = open.last_mut() {
            if let Some((key, item)) = top.rest.next() {
                match self.start(item, key.clone())? {
                    Ok(value) => put(&mut top.into, key, value),
                    Err(_) if open.len() >= MOST_LEVELS => {
                        return Err(Problem::Nesting { limit: MOST_LEVELS }.into());
                    }
                    Err(container) => open.push(container),
                }
            } else if let Some(Open { into, key, .. }) = open.pop() {
                match open.last_mut() {
                    Some(around) => put(&mut around.into, key, into),
                    None => return Ok(into),
                }
            }
        }
        Ok(Value::Null)
    }

    /// A value without items, or else the container to fill.
    fn start(&mut self, value: Id, key: String) -> Read<Result<Value, Open>> {
        self.spend()?;
        let graph = self.graph;
        Ok(Ok(match graph.node(value) {
            Node::Null => Value::Null,
            Node::Bool(flag) => flag.into(),
            Node::Int(number) => number.into(),
            Node::Unsigned(number) => number.into(),
            Node::Float(number) => Number::from_f64(number).map_or(Value::Null, Value::Number),
            Node::Text(place) | Node::Bytes(place) => self.copy(graph.bytes(place))?.into(),
            Node::List(items) | Node::Tuple(items) => {
                let mut rest = Vec::new();
                for item in graph.items(items) {
                    self.spend()?;
                    rest.push((String::new(), item));
                }
                let into = Value::Array(Vec::with_capacity(rest.len()));
                return Ok(Err(Open { into, key, rest: rest.into_iter() }));
            }
            Node::Dict(items) => {
                let mut rest = Vec::new();
                for (key, item) in graph.entries(items) {
                    self.spend()?;
                    rest.push((self.key(key)?, item));
                }
                let into = Value::Object(Map::new());
                return Ok(Err(Open { into, key, rest: rest.into_iter() }));
            }
        }))
    }

    fn key(&mut self, key: Id) -> Read<String> {
        match self.graph.node(key) {
            Node::Text(place) | Node::Bytes(place) => self.copy(self.graph.bytes(place)),
            Node::Int(number) => Ok(number.to_string()),
            _ => {
                let wants = "a text or a number as key";
                Err(Problem::Value { found: "another value".to_owned(), wants }.into())
            }
        }
    }

    fn copy(&mut self, text: &[u8]) -> Read<String> {
        self.bytes = self.bytes.checked_sub(text.len()).ok_or(Problem::Unfolds)?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

fn put(into: &mut Value, key: String, value: Value) {
    match into {
        Value::Object(map) => drop(map.insert(key, value)),
        Value::Array(list) => list.push(value),
        _ => {}
    }
}
