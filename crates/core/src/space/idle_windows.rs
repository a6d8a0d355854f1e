//! Idle windows: blocks of addresses that still lead to memory which backs others, by list and
//! size.
//!
//! Keeps its part of I3: a whole window that is idle stands here once, a part of one nowhere.

use crate::id::ListIx;
use std::collections::BTreeMap;

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
    windows: BTreeMap<WindowKey, BlockIndex>,
}

impl IdleWindows {
    /// A window became idle.
    pub(crate) fn insert(&mut self, key: WindowKey, index: BlockIndex) {
        let former = self.windows.insert(key, index);
        assert!(former.is_none(), "a window is idle twice");
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
        self.windows.range(least..=most).map(|(_, &index)| index)
    }

    /// Every idle window with its key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (WindowKey, BlockIndex)> + '_ {
        self.windows.iter().map(|(&key, &index)| (key, index))
    }
}
