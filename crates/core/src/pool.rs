//! Pools: segments and free lists with one purpose and lifetime, in two classes.
//!
//! Small blocks have segments of their own, so that they do not hold large ones. P8: a pool never
//! lends address space to another pool while it lives, and its segments are all of its kind.

use crate::error::RequestError;
use crate::id::PoolId;
use crate::policy::{SegmentKind, SizeClass};

/// Marks a stream for which a pool has no free list yet.
const NO_LIST: u32 = u32::MAX;

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    /// How its segments are obtained.
    pub(crate) kind: SegmentKind,
    pub(crate) generation: u32,
    pub(crate) is_released: bool,
    /// Its unused memory may serve anybody: it was released, and the device was idle after that.
    /// Before, graphs that were captured in the pool may still run, on whatever stream.
    pub(crate) is_open: bool,
    /// Segments that plans under way obtain for it.
    pub(crate) planned_segments: u32,
    /// The free list of each stream, by class and the stream's index.
    lists: [Vec<u32>; 2],
}

impl Pool {
    const fn new(kind: SegmentKind) -> Self {
        let lists = [Vec::new(), Vec::new()];
        let (is_released, is_open) = (false, false);
        Self { kind, generation: 0, is_released, is_open, planned_segments: 0, lists }
    }

    #[inline]
    pub(crate) fn list(&self, class: SizeClass, stream: u32) -> Option<u32> {
        self.lists[class as usize].get(stream as usize).copied().filter(|&list| list != NO_LIST)
    }

    pub(crate) fn set_list(&mut self, class: SizeClass, stream: u32, list: u32) {
        let lists = &mut self.lists[class as usize];
        if lists.len() <= stream as usize {
            lists.resize(stream as usize + 1, NO_LIST);
        }
        lists[stream as usize] = list;
    }

    /// The free lists of one class, with their streams' indices.
    pub(crate) fn lists(&self, class: SizeClass) -> impl Iterator<Item = (u32, u32)> + '_ {
        let lists = self.lists[class as usize].iter().enumerate();
        lists.filter(|&(_, &list)| list != NO_LIST).map(|(stream, &list)| (stream as u32, list))
    }
}

/// All pools of a heap; the default pool is there from the start.
#[derive(Debug)]
pub(crate) struct Pools {
    table: Vec<Pool>,
}

impl Pools {
    pub(crate) fn new(kind: SegmentKind) -> Self {
        Self { table: vec![Pool::new(kind)] }
    }

    /// Adds a pool. It takes the place, and the empty free lists, of a released pool of its kind
    /// that has no segments and will get none if there is one, so that pools that come and go leave
    /// nothing behind.
    pub(crate) fn add(&mut self, kind: SegmentKind, has_segments: impl Fn(u32) -> bool) -> PoolId {
        let mut indices = 0..self.table.len() as u32;
        let ended = indices.find(|&index| {
            let pool = self.at(index);
            let is_ended = pool.is_released && pool.planned_segments == 0;
            is_ended && pool.kind == kind && !has_segments(index)
        });
        if let Some(index) = ended {
            let pool = self.at_mut(index);
            (pool.is_released, pool.is_open) = (false, false);
            pool.generation += 1;
            return PoolId { index, generation: pool.generation };
        }
        self.table.push(Pool::new(kind));
        PoolId { index: (self.table.len() - 1) as u32, generation: 0 }
    }

    /// The pool with this id, if it was not released.
    #[inline]
    pub(crate) fn live(&self, id: PoolId) -> Result<&Pool, RequestError> {
        match self.table.get(id.index as usize) {
            Some(pool) if pool.generation == id.generation && !pool.is_released => Ok(pool),
            _ => Err(RequestError::UnknownPool { pool: id }),
        }
    }

    /// The pools that will be open once the device was idle.
    pub(crate) fn open_when_idle(&self) -> Vec<PoolId> {
        let pools = self.table.iter().enumerate();
        let closed = pools.filter(|(_, pool)| pool.is_released && !pool.is_open);
        closed.map(|(at, pool)| PoolId { index: at as u32, generation: pool.generation }).collect()
    }

    /// The device was idle after a pool was released.
    pub(crate) fn open(&mut self, id: PoolId) {
        let pool = self.at_mut(id.index);
        pool.is_open |= pool.is_released && pool.generation == id.generation;
    }

    /// Releases every pool, the default pool too.
    pub(crate) fn release_all(&mut self) {
        self.table.iter_mut().for_each(|pool| pool.is_released = true);
    }

    pub(crate) fn at(&self, index: u32) -> &Pool {
        &self.table[index as usize]
    }

    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Pool {
        &mut self.table[index as usize]
    }
}
