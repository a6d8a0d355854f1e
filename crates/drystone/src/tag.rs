//! Tags: what memory is for, in the program's words, and how much of each there is.
//!
//! Invariant: what is held under a tag is counted from when it is given until it is dropped, once.
//! Counting takes no lock and nothing of the heap: a hit costs what it did.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What a tag has at one moment, in bytes of live blocks, after rounding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TagStats {
    /// Its name.
    pub name: String,
    /// Now.
    pub bytes: u64,
    /// The most it ever was, or since the peaks were reset.
    pub peak_bytes: u64,
}

#[derive(Debug)]
struct Count {
    name: Box<str>,
    bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

/// A name for what memory is for: "weights", "kv", "scratch". Cloning gives the same tag.
#[derive(Clone, Debug)]
pub struct Tag(Arc<Count>);

impl Tag {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Counts so many bytes for as long as the result lives: for memory that the program keeps by
    /// its address. An [`Allocation`](crate::Allocation) and a [`Growable`](crate::Growable) count
    /// by themselves.
    pub fn hold(&self, bytes: u64) -> Held {
        let mut held = Held { tag: self.clone(), bytes: 0 };
        held.set_bytes(bytes);
        held
    }
}

/// Bytes that are counted under a tag until this is dropped.
#[must_use = "dropping it ends the count"]
pub struct Held {
    tag: Tag,
    bytes: u64,
}

impl Held {
    /// What they are counted under.
    pub const fn tag(&self) -> &Tag {
        &self.tag
    }

    /// Counts so many from now on.
    pub fn set_bytes(&mut self, bytes: u64) {
        let count = &*self.tag.0;
        if bytes >= self.bytes {
            let more = bytes - self.bytes;
            // What a program holds by its word may be any number.
            let now = count.bytes.fetch_add(more, Ordering::Relaxed).wrapping_add(more);
            count.peak_bytes.fetch_max(now, Ordering::Relaxed);
        } else {
            count.bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set_bytes(0);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes, self.tag.name())
    }
}

/// All tags of an allocator, in the order they were first named.
#[derive(Debug, Default)]
pub(crate) struct Tags(Mutex<Vec<Tag>>);

impl Tags {
    pub(crate) fn tag(&self, name: &str) -> Tag {
        let mut tags = self.0.lock();
        if let Some(tag) = tags.iter().find(|tag| tag.name() == name) {
            return tag.clone();
        }
        let (bytes, peak_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let tag = Tag(Arc::new(Count { name: name.into(), bytes, peak_bytes }));
        tags.push(tag.clone());
        tag
    }

    pub(crate) fn stats(&self) -> Vec<TagStats> {
        let read = |tag: &Tag| TagStats {
            name: tag.name().to_owned(),
            bytes: tag.0.bytes.load(Ordering::Relaxed),
            peak_bytes: tag.0.peak_bytes.load(Ordering::Relaxed),
        };
        self.0.lock().iter().map(read).collect()
    }

    pub(crate) fn reset_peaks(&self) {
        for Tag(count) in &*self.0.lock() {
            count.peak_bytes.store(count.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tags;

    #[test]
    fn a_program_may_hold_what_there_cannot_be() {
        let tags = Tags::default();
        let tag = tags.tag("kv");
        let held = [u64::MAX, 2].map(|bytes| tag.hold(bytes));
        drop(held);
        assert_eq!(tags.stats()[0].bytes, 0);
    }
}
