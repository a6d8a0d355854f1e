//! Idle windows: blocks of addresses that still lead to memory which backs others, by list and
//! size, and in the order in which they became idle.
//!
//! Keeps its part of I3: a whole window that is idle stands here once, a part of one nowhere.

use crate::id::ListIx;
use std::collections::{BTreeMap, VecDeque};

use super::block::BlockIndex;

/// Where an idle window stands: its list, its size in granules, its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WindowKey {
    pub(crate) list: ListIx,
    pub(crate) granules: u32,
    pub(crate) address: u64,
}

/// All idle windows of a space.
#[derive(Debug, Default)]
pub(crate) struct IdleWindows {
    /// With the number each got when it became idle.
    windows: BTreeMap<WindowKey, (BlockIndex, u64)>,
    /// The same in the order of those numbers; some are in use again, or idle anew.
    oldest: VecDeque<(WindowKey, u64)>,
    /// How many ever became idle.
    count: u64,
}

impl IdleWindows {
    /// A window became idle.
    pub(crate) fn insert(&mut self, key: WindowKey, index: BlockIndex) {
        self.count += 1;
        let former = self.windows.insert(key, (index, self.count));
        assert!(former.is_none(), "a window is idle twice");
        self.oldest.push_back((key, self.count));
    }

    /// A window is not idle any more.
    pub(crate) fn remove(&mut self, key: WindowKey) {
        let found = self.windows.remove(&key);
        assert!(found.is_some(), "a window is taken that was not idle");
    }

    /// The windows of a list that have so many granules, the smallest first, at the lowest address
    /// if equal.
    #[inline]
    pub(crate) fn of_size(
        &self,
        list: ListIx,
        granules: u32,
    ) -> impl Iterator<Item = BlockIndex> + '_ {
        let least = WindowKey { list, granules, address: 0 };
        let most = WindowKey { list, granules: u32::MAX, address: u64::MAX };
        self.windows.range(least..=most).map(|(_, &(index, _))| index)
    }

    /// Every idle window with its key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (WindowKey, BlockIndex)> + '_ {
        self.windows.iter().map(|(&key, &(index, _))| (key, index))
    }

    /// The window that has been idle for longest.
    pub(crate) fn oldest(&self) -> Option<BlockIndex> {
        self.oldest.iter().find_map(|&(key, number)| self.idle_since(key, number))
    }

    fn idle_since(&self, key: WindowKey, number: u64) -> Option<BlockIndex> {
        let &(index, since) = self.windows.get(&key)?;
        (since == number).then_some(index)
    }

    /// Offers the windows, the longest idle first, until `wants_more` says no; those that `take`
    /// declines go to the end of the order.
    pub(crate) fn take_oldest(
        &mut self,
        mut wants_more: impl FnMut() -> bool,
        mut take: impl FnMut(BlockIndex) -> bool,
    ) {
        for _ in 0..self.oldest.len() {
            if !wants_more() {
                break;
            }
            let Some((key, number)) = self.oldest.pop_front() else { break };
            let Some(index) = self.idle_since(key, number) else { continue };
            if take(index) {
                self.windows.remove(&key);
            } else {
                self.oldest.push_back((key, number));
            }
        }
    }

    /// How many entries the order has.
    #[cfg(test)]
    pub(crate) fn noted(&self) -> usize {
        self.oldest.len()
    }

    /// Forgets entries of the order that are idle no more, once there are more than so many.
    pub(crate) fn tidy(&mut self, most: usize) {
        if self.oldest.len() > most {
            let mut oldest = std::mem::take(&mut self.oldest);
            oldest.retain(|&(key, number)| self.idle_since(key, number).is_some());
            self.oldest = oldest;
        }
    }
}
