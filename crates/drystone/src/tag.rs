//! Tags: what memory is for, in the program's words, and how much of each there is.
//!
//! Invariant: what is held under a tag is counted from when it is given until it is freed, once. A
//! block has its tag by its address, in one table for every way to allocate and to free. While no
//! block has one, nothing looks there; while some have, each free does, under a lock of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::observers::{Observer, Observers};

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

    /// Counts so many bytes for as long as the result lives: for memory that is not the
    /// allocator's. Blocks of the allocator are
    /// [tagged by their address](crate::Allocator::tag_block).
    pub fn hold(&self, bytes: u64) -> Held {
        self.count(0, bytes);
        Held { tag: self.clone(), bytes }
    }

    /// Counts so many bytes instead of others.
    fn count(&self, old_bytes: u64, bytes: u64) {
        let count = &*self.0;
        if bytes >= old_bytes {
            let more = bytes - old_bytes;
            // What a program holds by its word may be any number.
            let now = count.bytes.fetch_add(more, Ordering::Relaxed).wrapping_add(more);
            count.peak_bytes.fetch_max(now, Ordering::Relaxed);
        } else {
            count.bytes.fetch_sub(old_bytes - bytes, Ordering::Relaxed);
        }
    }
}

/// Bytes that are counted under a tag until this is dropped.
#[must_use = "dropping it ends the count"]
pub struct Held {
    tag: Tag,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tag.count(self.bytes, 0);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {}", self.bytes, self.tag.name())
    }
}

/// All tags of an allocator, and the blocks that have one.
#[derive(Debug)]
pub(crate) struct Tags {
    observers: Arc<Observers>,
    /// In the order they were first named.
    names: Mutex<Vec<Tag>>,
    /// From a block's address to its tag's position in `names`: the library is small, and has such
    /// a table anyhow. The block's bytes are asked of the heap. [`Observer::Tags`] is told of frees
    /// just while some block is here. Locked before `names`.
    blocks: Mutex<BTreeMap<u64, u32>>,
}

impl Tags {
    pub(crate) fn new(observers: Arc<Observers>) -> Self {
        Self { observers, names: Mutex::default(), blocks: Mutex::default() }
    }

    /// The block at an address has so many bytes, and a tag or none from now on.
    pub(crate) fn set(&self, address: u64, tag: Option<&Tag>, bytes: u64) {
        let mut blocks = self.blocks.lock();
        if let Some(position) = blocks.remove(&address) {
            // Before it counts anew: the peak has it once.
            self.count(position, bytes, 0);
        }
        if let Some(tag) = tag {
            // One of another allocator is the one of its name here.
            let (position, tag) = self.named(tag.name());
            blocks.insert(address, position);
            tag.count(0, bytes);
            self.observers.add(Observer::Tags);
        } else if blocks.is_empty() {
            self.observers.remove(Observer::Tags);
        }
    }

    /// The block at an address had so many bytes, and has so many from now on.
    pub(crate) fn resized(&self, address: u64, old_bytes: u64, bytes: u64) {
        let blocks = self.blocks.lock();
        if let Some(&position) = blocks.get(&address) {
            self.count(position, old_bytes, bytes);
        }
    }

    pub(crate) fn of(&self, address: u64) -> Option<Tag> {
        let blocks = self.blocks.lock();
        let position = *blocks.get(&address)?;
        self.names.lock().get(position as usize).cloned()
    }

    fn count(&self, position: u32, old_bytes: u64, bytes: u64) {
        if let Some(tag) = self.names.lock().get(position as usize) {
            tag.count(old_bytes, bytes);
        }
    }

    /// The tag of a name, made if it is new, and its position.
    fn named(&self, name: &str) -> (u32, Tag) {
        let mut names = self.names.lock();
        let known = names.iter().position(|tag| tag.name() == name);
        let position = known.unwrap_or(names.len());
        let (bytes, peak_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let new = || Tag(Arc::new(Count { name: name.into(), bytes, peak_bytes }));
        let tag = known.and_then(|at| names.get(at).cloned()).unwrap_or_else(new);
        if known.is_none() {
            names.push(tag.clone());
        }
        // Cannot truncate: 2^32 names do not fit in memory.
        (position as u32, tag)
    }

    pub(crate) fn tag(&self, name: &str) -> Tag {
        self.named(name).1
    }

    pub(crate) fn stats(&self) -> Vec<TagStats> {
        let read = |tag: &Tag| TagStats {
            name: tag.name().to_owned(),
            bytes: tag.0.bytes.load(Ordering::Relaxed),
            peak_bytes: tag.0.peak_bytes.load(Ordering::Relaxed),
        };
        self.names.lock().iter().map(read).collect()
    }

    pub(crate) fn reset_peaks(&self) {
        for Tag(count) in &*self.names.lock() {
            count.peak_bytes.store(count.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drystone_driver::Stream;
    use drystone_sim::{SimConfig, SimDevice};

    use super::Tags;
    use crate::observers::Observer;
    use crate::{Allocator, Options, PoolId};

    #[test]
    fn a_program_may_hold_what_there_cannot_be() {
        let tags = Tags::new(Arc::default());
        let tag = tags.tag("kv");
        let held = [u64::MAX, 2].map(|bytes| tag.hold(bytes));
        drop(held);
        assert_eq!(tags.stats()[0].bytes, 0);
    }

    #[test]
    fn a_block_counts_until_it_is_freed_however_that_is() {
        let device = SimDevice::new(SimConfig::default());
        let allocator = Allocator::new(Arc::new(device), &Options::default()).unwrap();
        let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
        let [kv, weights] = ["kv", "weights"].map(|name| allocator.tag(name));
        let bytes = || allocator.tag_stats().iter().map(|tag| tag.bytes).collect::<Vec<_>>();
        let is_observed = || allocator.engine.observers.has(Observer::Tags);

        let raw = allocator.allocate_raw(PoolId::DEFAULT, stream, 1000).unwrap();
        allocator.tag_block(raw.address, Some(&kv)).unwrap();
        allocator.tag_block(raw.address, Some(&kv)).unwrap();
        assert_eq!((bytes(), allocator.tag_stats()[0].peak_bytes), (vec![1024, 0], 1024));
        // What is refused changes nothing.
        assert!(allocator.free_sized(raw.address, 1024).is_err());
        assert!(allocator.tag_block(raw.address + 512, Some(&kv)).is_err());
        assert!(allocator.tag_block(0, None).is_err());
        assert_eq!(bytes(), [1024, 0]);
        allocator.tag_block(raw.address, Some(&weights)).unwrap();
        assert_eq!((bytes(), is_observed()), (vec![0, 1024], true));
        assert_eq!(allocator.tag_of(raw.address).unwrap().name(), "weights");
        allocator.free_sized(raw.address, 1000).unwrap();
        assert_eq!((bytes(), is_observed()), (vec![0, 0], false));
        // The next block there has none.
        let next = allocator.allocate(stream, 1000).unwrap();
        assert_eq!(next.address(), raw.address);
        assert!(allocator.tag_of(next.address()).is_none());

        let address = next.tagged(&kv).into_address();
        allocator.tag_block(address, None).unwrap();
        assert_eq!((bytes(), is_observed()), (vec![0, 0], false));
        allocator.tag_block(address, Some(&kv)).unwrap();
        allocator.free(address).unwrap();
        drop(allocator.allocate(stream, 0).unwrap().tagged(&kv));
        assert_eq!((bytes(), is_observed()), (vec![0, 0], false));

        let mut cache = allocator.reserve(stream, 1 << 30).unwrap().tagged(&kv);
        cache.grow_to(5 << 20).unwrap();
        assert_eq!(bytes(), [6 << 20, 0]);
        cache.shrink_to(0).unwrap();
        cache.grow_to(1).unwrap();
        assert_eq!(bytes(), [2 << 20, 0]);
        cache.shrink_to(0).unwrap();
        drop(cache);
        assert_eq!((bytes(), is_observed()), (vec![0, 0], false));
    }
}
