//! Pools: ids that outlive what they name, for the pools of a heap and for those of the driver.
//!
//! Of a heap: segments and free lists with one purpose and lifetime, in two classes. Small blocks
//! have segments of their own, so that they do not hold large ones. P8: a pool never gives address
//! space to another pool while it lives, and its segments are all of its kind.

use crate::error::RequestError;
use crate::fence::Streams;
use crate::id::{ListIx, PoolId, PoolIx, StreamId, StreamIx, next_generation};
use crate::policy::{self, SegmentKind, SizeClass};
use crate::space::Space;
use crate::space::free_list::FreeList;

/// Marks a stream for which a pool has no free list yet.
const NO_LIST: ListIx = ListIx(u32::MAX);

/// One pool of a heap.
#[derive(Debug)]
pub(crate) struct Pool {
    /// How its segments are obtained.
    pub(crate) kind: SegmentKind,
    /// Whether blocks share segments. Where they do not, each request has one of its own.
    pub(crate) is_split: bool,
    /// Its unused memory may serve anybody: it was released, and the device was idle after that.
    /// Before, graphs that were captured in the pool may still run, on whatever stream.
    pub(crate) is_open: bool,
    /// Graphs that were captured here never run at the same time: what one capture freed serves the
    /// next, whatever stream that captures.
    pub(crate) is_exclusive: bool,
    /// The addresses of the one block that grows here, in bytes; 0 for a pool of other blocks.
    pub(crate) room_bytes: u64,
    /// Segments that plans under way obtain for it.
    pub(crate) planned_segments: u32,
    /// The free list of each stream, by class and the stream's index.
    lists: [Vec<ListIx>; 2],
}

impl Pool {
    pub(crate) const fn new(kind: SegmentKind, is_split: bool) -> Self {
        let lists = [Vec::new(), Vec::new()];
        Self {
            kind,
            is_split,
            is_open: false,
            is_exclusive: true,
            room_bytes: 0,
            planned_segments: 0,
            lists,
        }
    }

    #[inline]
    pub(crate) fn list(&self, class: SizeClass, stream: StreamIx) -> Option<ListIx> {
        self.lists[class as usize].get(stream.index()).copied().filter(|&list| list != NO_LIST)
    }

    /// A plan of a new segment is over.
    pub(crate) fn end_segment_plan(&mut self) {
        assert!(self.planned_segments > 0, "a segment arrives that was not planned");
        self.planned_segments -= 1;
    }

    /// The free lists of one class, with their streams' indices.
    pub(crate) fn lists(&self, class: SizeClass) -> impl Iterator<Item = (StreamIx, ListIx)> + '_ {
        let lists = self.lists[class as usize].iter().enumerate();
        lists
            .filter(|&(_, &list)| list != NO_LIST)
            .map(|(stream, &list)| (StreamIx(stream as u32), list))
    }
}

/// All pools of a heap, or of the driver; the default pool is there from the start.
#[derive(Debug)]
pub(crate) struct Pools<T> {
    table: Vec<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u64,
    is_released: bool,
    pool: T,
}

impl<T> Pools<T> {
    pub(crate) fn new(default: T) -> Self {
        Self { table: vec![Slot { generation: 0, is_released: false, pool: default }] }
    }

    /// Adds a pool. It takes the place of a released one that has ended, if there is one, with what
    /// that left: so pools that come and go leave nothing behind.
    pub(crate) fn add(&mut self, new: T, has_ended: impl Fn(PoolIx, &T) -> bool) -> PoolId {
        let is_place = |(index, slot): (u32, &Slot<T>)| {
            slot.is_released && has_ended(PoolIx(index), &slot.pool)
        };
        if let Some(index) = (0..).zip(&self.table).position(is_place) {
            let slot = &mut self.table[index];
            slot.is_released = false;
            slot.generation = next_generation();
            return PoolId { index: PoolIx(index as u32), generation: slot.generation };
        }
        assert!(self.table.len() < u32::MAX as usize, "more pools than indices");
        let generation = next_generation();
        self.table.push(Slot { generation, is_released: false, pool: new });
        PoolId { index: PoolIx((self.table.len() - 1) as u32), generation }
    }

    /// The pool with this id, if it was not released.
    #[inline]
    pub(crate) fn live(&self, id: PoolId) -> Result<&T, RequestError> {
        match self.table.get(id.index()) {
            Some(slot) if slot.generation == id.generation && !slot.is_released => Ok(&slot.pool),
            _ => Err(RequestError::UnknownPool { pool: id }),
        }
    }

    /// Releases a pool, which is not the default pool: it serves no further request.
    pub(crate) fn release(&mut self, id: PoolId) -> Result<(), RequestError> {
        self.live(id)?;
        if id == PoolId::DEFAULT {
            return Err(RequestError::UnknownPool { pool: id });
        }
        self.table[id.index()].is_released = true;
        Ok(())
    }

    /// Releases every pool, the default pool too.
    pub(crate) fn release_all(&mut self) {
        self.table.iter_mut().for_each(|slot| slot.is_released = true);
    }

    /// All pools, and whether each is released.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PoolId, bool, &T)> {
        (0..).zip(&self.table).map(|(index, slot)| {
            (
                PoolId { index: PoolIx(index), generation: slot.generation },
                slot.is_released,
                &slot.pool,
            )
        })
    }

    pub(crate) fn at(&self, index: PoolIx) -> &T {
        &self.table[index.index()].pool
    }

    pub(crate) fn at_mut(&mut self, index: PoolIx) -> &mut T {
        &mut self.table[index.index()].pool
    }
}

impl Pools<Pool> {
    /// The free list of a pool, class and stream, made if there is none yet.
    #[cold]
    pub(crate) fn list_in(
        &mut self,
        space: &mut Space,
        pool: PoolIx,
        class: SizeClass,
        stream: StreamIx,
    ) -> ListIx {
        let of = self.at_mut(pool);
        if let Some(list) = of.list(class, stream) {
            return list;
        }
        let mut new = FreeList::new(pool, of.kind, class, stream);
        new.kept_rest_bytes = policy::kept_rest_bytes(of.kind, class, of.is_split);
        let list = space.insert_list(new);
        let lists = &mut of.lists[class as usize];
        if lists.len() <= stream.index() {
            lists.resize(stream.index() + 1, NO_LIST);
        }
        lists[stream.index()] = list;
        list
    }

    /// The free list of a growing pool, on whose stream the block is.
    pub(crate) fn growing_list(
        &mut self,
        space: &mut Space,
        streams: &Streams,
        pool: PoolId,
        stream: StreamId,
    ) -> Result<ListIx, RequestError> {
        self.live(pool)?;
        streams.live(stream)?;
        Ok(self.list_in(space, pool.index, SizeClass::Large, stream.index))
    }

    /// Whether unused memory of a list may go elsewhere: that of the default pool, and of those
    /// that were released before the device was idle.
    pub(crate) fn is_open(&self, list: &FreeList) -> bool {
        list.pool == PoolId::DEFAULT.index || self.at(list.pool).is_open
    }

    /// The lists of mapped memory that is open.
    pub(crate) fn open_mapped<'a>(
        &'a self,
        space: &'a Space,
    ) -> impl Iterator<Item = &'a FreeList> {
        let lists = space.lists().iter();
        lists.filter(|list| list.kind == SegmentKind::Mapped && self.is_open(list))
    }

    /// Whether a list is of the pool of a block that grows.
    pub(crate) fn is_growing(&self, list: &FreeList) -> bool {
        self.at(list.pool).room_bytes > 0
    }

    /// Whether there is a block that grows, or was.
    pub(crate) fn has_growing(&self) -> bool {
        self.iter().any(|(.., pool)| pool.room_bytes > 0)
    }

    /// Whether a trim takes unused memory of a list: of open ones, and what a block that grows has
    /// given up.
    pub(crate) fn gives_back(&self, list: &FreeList) -> bool {
        self.is_open(list) || self.is_growing(list)
    }

    /// The pools that will be open once the device was idle.
    pub(crate) fn open_when_idle(&self) -> Vec<PoolId> {
        let closed = self.iter().filter(|(_, is_released, pool)| *is_released && !pool.is_open);
        closed.map(|(id, ..)| id).collect()
    }

    /// The device was idle after a pool was released.
    pub(crate) fn open(&mut self, id: PoolId) {
        let slot = &mut self.table[id.index()];
        slot.pool.is_open |= slot.is_released && slot.generation == id.generation;
    }
}
