//! JSON into the same values as a pickle's.
//!
//! Invariant: equal texts become one value, as a pickle's memo would have made them; nesting is
//! limited by serde_json to 128.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::codec::error::{Place, Problem};
use crate::codec::graph::{Full, Graph, Id, Items, Node};

/// Reads one JSON value, which must be the whole file.
pub(in crate::codec) fn read(file: &[u8]) -> Result<(Graph<'_>, Id), (Place, Problem)> {
    // The text is copied into the graph, once for each different one.
    let build = RefCell::new(Build { graph: Graph::new(&[]), texts: HashMap::new() });
    let mut deserializer = serde_json::Deserializer::from_slice(file);
    let root = Seed(&build).deserialize(&mut deserializer);
    let root = root.and_then(|root| deserializer.end().map(|()| root));
    match root {
        Ok(root) => Ok((build.into_inner().graph, root)),
        Err(error) => Err((Place::Line(error.line() as u64), Problem::Json(error))),
    }
}

struct Build<'f> {
    graph: Graph<'f>,
    texts: HashMap<Box<str>, Id>,
}

impl Build<'_> {
    fn text(&mut self, text: Cow<'_, str>) -> Result<Id, Full> {
        if let Some(&id) = self.texts.get(&*text) {
            return Ok(id);
        }
        let place = self.graph.add_text(text.as_bytes())?;
        let id = self.graph.add(Node::Text(place))?;
        self.texts.insert(text.into(), id);
        Ok(id)
    }
}

#[derive(Clone, Copy)]
struct Seed<'b, 'f>(&'b RefCell<Build<'f>>);

impl Seed<'_, '_> {
    fn add<E: Error>(self, node: Node) -> Result<Id, E> {
        self.0.borrow_mut().graph.add(node).map_err(|Full| full())
    }

    fn extend<E: Error>(self, items: &[Id]) -> Result<Items, E> {
        self.0.borrow_mut().graph.extend(Items::NONE, items).map_err(|Full| full())
    }

    fn text<E: Error>(self, text: Cow<'_, str>) -> Result<Id, E> {
        self.0.borrow_mut().text(text).map_err(|Full| full())
    }
}

fn full<E: Error>() -> E {
    E::custom("more values than 32 bits can number")
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Id;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Id, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Id, E> {
        self.add(Node::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Id, E> {
        self.add(Node::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Id, E> {
        self.add(Node::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Id, E> {
        self.add(i64::try_from(value).map_or(Node::Unsigned(value), Node::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Id, E> {
        self.add(Node::Float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Id, E> {
        self.text(Cow::Borrowed(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Id, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
        }
        let items = self.extend(&items)?;
        self.add(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Id, A::Error> {
        let mut items = Vec::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            items.push(self.text(key)?);
            items.push(map.next_value_seed(self)?);
        }
        let items = self.extend(&items)?;
        self.add(Node::Dict(items))
    }
}
