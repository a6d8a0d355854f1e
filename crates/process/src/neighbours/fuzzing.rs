//! What a fuzzer needs of a board (`fuzz/fuzz_targets/board.rs`): a process that serves, and a slot
//! of another that lives and writes anything.

use std::path::Path;
use std::sync::atomic::Ordering;

use drystone::{Allocator, Options};

use super::Table;
use super::board::Board;
use super::wish::{Stage, Wish};

/// Two processes on a board, as it seems.
pub struct Meeting {
    allocator: Allocator,
    table: &'static Table,
    wild: Board,
    /// What is in the other's slot while it writes nothing there.
    whole: Vec<u64>,
}

impl Meeting {
    /// An allocator whose memory is given back to whoever wishes for it on a new board.
    pub fn new(path: &Path, allocator: &Allocator, device_bytes: u64) -> Option<Self> {
        let table = Table::with(Board::join_at(path), &Options::default(), device_bytes);
        table.begin(allocator);
        let wild = Board::join_at(path)?;
        let whole = wild.own().words().map(|word| word.load(Ordering::Relaxed)).collect();
        Some(Self { allocator: allocator.clone(), table, wild, whole })
    }

    /// Writes changes of words over the other's slot, and serves what it wishes then. Returns how
    /// many bytes it may be given.
    pub fn serve(&self, changes: &[(u8, u64)]) -> u64 {
        let Some(board) = &self.table.board else { return 0 };
        for (at, word) in self.wild.own().words().enumerate() {
            let is_here = |change: &&(u8, u64)| usize::from(change.0) % self.whole.len() == at;
            let change = changes.iter().rfind(is_here);
            word.store(change.map_or(self.whole[at], |change| change.1), Ordering::Relaxed);
        }
        let wish = Wish::of(self.wild.own().wish.load(Ordering::Relaxed)).filter(|wish| {
            let is_to_us = usize::from(wish.to) == board.own_index();
            wish.stage == Stage::Posted && is_to_us && board.is_alive(self.wild.own_index())
        });
        while self.table.serve_one(board, &self.allocator) {}
        board.others().for_each(|(_, slot)| assert!(slot.name().len() <= 16));
        board.lacked_before(u64::MAX, self.table.wait);
        wish.map_or(0, Wish::bytes)
    }
}
