//! Values as a file describes them, before anything is known about their meaning.
//!
//! A value is a 32-bit index, so whatever a file shares stays shared: a list named 200,000 times
//! costs 4 bytes each time. The items of containers lie in one vector, in runs, and texts stay
//! where they are in the file. Invariant: memory is a small multiple of the file's size (about
//! three for real snapshots; 60 at worst), and nothing here recurses. Values may contain
//! themselves; whoever walks them needs a limit.

/// Index of a value.
pub(super) type Id = u32;

/// Ends a chain of runs.
const END: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
    Float(f64),
    Text(Place),
    Bytes(Place),
    List(Items),
    Tuple(Items),
    /// Keys and values, alternating.
    Dict(Items),
}

const _: () = assert!(size_of::<Node>() == 16);

/// Where a text lies: in the file, or beyond its end in the graph's own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    at: u32,
    len: u32,
}

/// The first and last run of a container's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Items {
    first: u32,
    last: u32,
}

impl Items {
    pub(super) const NONE: Self = Self { first: END, last: END };
}

/// Items that lie together.
#[derive(Clone, Copy)]
struct Run {
    start: u32,
    len: u32,
    next: u32,
}

/// More values than 32 bits can number.
#[derive(Debug)]
pub(super) struct Full;

pub(super) struct Graph<'f> {
    file: &'f [u8],
    text: Vec<u8>,
    nodes: Vec<Node>,
    children: Vec<Id>,
    runs: Vec<Run>,
}

impl<'f> Graph<'f> {
    /// An empty graph over a file of at most 4 GiB.
    pub(super) fn new(file: &'f [u8]) -> Self {
        Self { file, text: vec![], nodes: vec![], children: vec![], runs: vec![] }
    }

    pub(super) fn add(&mut self, node: Node) -> Result<Id, Full> {
        let id = index(self.nodes.len())?;
        self.nodes.push(node);
        Ok(id)
    }

    pub(super) fn node(&self, id: Id) -> Node {
        self.nodes[id as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn set(&mut self, id: Id, node: Node) {
        self.nodes[id as usize] = node;
    }

    /// How many items all containers have together.
    pub(super) fn children(&self) -> usize {
        self.children.len()
    }

    /// The size of all text there can be, in bytes.
    pub(super) fn text_bytes(&self) -> usize {
        self.file.len() + self.text.len()
    }

    /// A text that lies in the file.
    pub(super) fn place(&self, start: usize, len: usize) -> Result<Place, Full> {
        Ok(Place { at: index(start)?, len: index(len)? })
    }

    /// A text that does not lie in the file as it is.
    pub(super) fn add_text(&mut self, text: &[u8]) -> Result<Place, Full> {
        let place = self.place(self.text_bytes(), text.len())?;
        index(self.text_bytes() + text.len())?;
        self.text.extend_from_slice(text);
        Ok(place)
    }

    pub(super) fn bytes(&self, place: Place) -> &[u8] {
        let (at, len) = (place.at as usize, place.len as usize);
        match at.checked_sub(self.file.len()) {
            Some(at) => &self.text[at..at + len],
            None => &self.file[at..at + len],
        }
    }

    /// Appends items to a container's.
    pub(super) fn extend(&mut self, items: Items, more: &[Id]) -> Result<Items, Full> {
        if more.is_empty() {
            return Ok(items);
        }
        let start = index(self.children.len())?;
        index(self.children.len() + more.len())?;
        // Cannot truncate: the whole vector's length has just been checked.
        let len = more.len() as u32;
        self.children.extend_from_slice(more);
        let last = self.runs.get_mut(items.last as usize);
        if let Some(last) = last.filter(|last| last.start + last.len == start) {
            last.len += len;
            return Ok(items);
        }
        let run = index(self.runs.len())?;
        self.runs.push(Run { start, len, next: END });
        match self.runs.get_mut(items.last as usize) {
            Some(last) => {
                last.next = run;
                Ok(Items { last: run, ..items })
            }
            None => Ok(Items { first: run, last: run }),
        }
    }

    pub(super) fn items(&self, items: Items) -> impl Iterator<Item = Id> + '_ {
        let first = self.runs.get(items.first as usize);
        let runs = std::iter::successors(first, |run| self.runs.get(run.next as usize));
        runs.flat_map(|run| &self.children[run.start as usize..][..run.len as usize]).copied()
    }

    /// The keys and values of a dictionary.
    pub(super) fn entries(&self, items: Items) -> impl Iterator<Item = (Id, Id)> + '_ {
        let mut items = self.items(items);
        std::iter::from_fn(move || Some((items.next()?, items.next()?)))
    }
}

/// A length or position as 32 bits; the largest is [`END`].
fn index(value: usize) -> Result<u32, Full> {
    u32::try_from(value).ok().filter(|value| *value < END).ok_or(Full)
}
