//! Pins: memory that stays where it is, whoever frees it.
//!
//! Who gave an address to a network card, to NCCL or to another process pins the block there. I16:
//! every handle that a pin covers a byte of backs the same addresses there until the last such pin
//! is taken back, also once the block is free: it is not remapped, not sent home and not released.
//! It serves requests of its own free list as before. A private pool keeps what is behind addresses
//! anyway (I12): of its memory a pin keeps just that, also after the pool's end.

use std::collections::BTreeMap;
use std::iter::once;
use std::ops::Range;

/// By what a pin is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinKey {
    /// A block's first address: pins of it add up, and the longest counts.
    Block(u64),
    /// The first and the last address of a range, which does not end with another of its start.
    Range(u64, u64),
    /// The first address of a handle, while it moves.
    Move(u64),
}

/// What was pinned by a key: the addresses, what they cover, and how often they were.
#[derive(Debug)]
struct Pinned {
    addresses: Range<u64>,
    covered: Range<u64>,
    times: u64,
}

/// What is pinned.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    by_key: BTreeMap<PinKey, Pinned>,
    /// By address: from each of these up to the next, how many of the pinned cover it. It differs
    /// from one to the next, and is 0 before the first and from the last on. Pieces end where
    /// handles do: there are few.
    pieces: Vec<(u64, u32)>,
    /// Bytes that at least one covers.
    pub(super) bytes: u64,
}

impl Pins {
    /// Adds a pin of addresses, which lie in these whole handles.
    pub(crate) fn pin(&mut self, key: PinKey, addresses: Range<u64>, covered: Range<u64>) {
        assert!(!addresses.is_empty(), "a pin of nothing");
        let is_around = covered.start <= addresses.start && addresses.end <= covered.end;
        assert!(is_around, "a pin covers less than its block");
        if let Some(pinned) = self.by_key.get_mut(&key) {
            let more = pinned.covered.end..covered.end;
            pinned.addresses.end = pinned.addresses.end.max(addresses.end);
            pinned.covered.end = pinned.covered.end.max(covered.end);
            pinned.times += 1;
            return self.cover(more, |pins| pins + 1);
        }
        self.by_key.insert(key, Pinned { addresses, covered: covered.clone(), times: 1 });
        self.cover(covered, |pins| pins + 1);
    }

    /// Takes a pin back; `None` if there was none. What it covered, if it was the last of its key.
    pub(crate) fn unpin(&mut self, key: PinKey) -> Option<Option<Range<u64>>> {
        let pinned = self.by_key.get_mut(&key)?;
        assert!(pinned.times > 0, "a pin is kept that is over");
        pinned.times -= 1;
        if pinned.times > 0 {
            return Some(None);
        }
        let covered = std::mem::take(&mut pinned.covered);
        self.by_key.remove(&key);
        self.cover(covered.clone(), |pins| pins - 1);
        Some(Some(covered))
    }

    /// Counts anew how many cover a range. Takes as long as there are pieces in it.
    fn cover(&mut self, Range { start, end }: Range<u64>, count: impl Fn(u32) -> u32) {
        if start >= end {
            return;
        }
        let (from, to) = (self.edge(start), self.edge(end));
        for at in from..to {
            let before = self.pieces[at].1;
            let pins = count(before);
            self.pieces[at].1 = pins;
            let bytes = self.pieces[at + 1].0 - self.pieces[at].0;
            match (before, pins) {
                (0, _) => self.bytes += bytes,
                (_, 0) => self.bytes -= bytes,
                _ => {}
            }
        }
        // Within, two pieces that differed still do.
        for at in [to, from] {
            if self.pieces[at].1 == at.checked_sub(1).map_or(0, |before| self.pieces[before].1) {
                self.pieces.remove(at);
            }
        }
    }

    /// The piece that starts at an address, made if there is none yet.
    fn edge(&mut self, address: u64) -> usize {
        let at = self.pieces.partition_point(|piece| piece.0 < address);
        if self.pieces.get(at).is_none_or(|piece| piece.0 != address) {
            let pins = at.checked_sub(1).map_or(0, |before| self.pieces[before].1);
            self.pieces.insert(at, (address, pins));
        }
        at
    }

    /// The covered pieces that overlap a range, in order.
    fn within(&self, Range { start, end }: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.pieces.partition_point(|piece| piece.0 <= start).saturating_sub(1);
        let pieces = self.pieces[first..].windows(2).take_while(move |pair| pair[0].0 < end);
        let covered = pieces.filter(move |pair| pair[0].1 > 0 && pair[1].0 > start);
        covered.map(|pair| pair[0].0..pair[1].0)
    }

    /// Whether anything in a range is pinned.
    #[inline(never)]
    pub(crate) fn touch(&self, addresses: Range<u64>) -> bool {
        self.within(addresses).next().is_some()
    }

    /// What of a range of whole handles is not pinned, in order.
    pub(crate) fn free_of(&self, addresses: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = addresses;
        let starts = once(start).chain(self.within(start..end).map(|covered| covered.end));
        let ends = self.within(start..end).map(|covered| covered.start).chain(once(end));
        starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty())
    }

    /// Whether nothing is.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// What was pinned: start and end.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_key.values().map(|pinned| (pinned.addresses.start, pinned.addresses.end))
    }
}

#[cfg(test)]
mod tests {
    use super::{PinKey, Pins};
    use std::ops::Range;

    fn free_of(pins: &Pins, addresses: Range<u64>) -> Vec<Range<u64>> {
        pins.free_of(addresses).collect()
    }

    fn pin_block(pins: &mut Pins, addresses: Range<u64>, covered: Range<u64>) {
        pins.pin(PinKey::Block(addresses.start), addresses, covered);
    }

    fn is_last(pins: &mut Pins, key: PinKey) -> Option<bool> {
        pins.unpin(key).map(|covered| covered.is_some())
    }

    #[test]
    fn pins_of_one_address_add_up_and_the_longest_counts() {
        let mut pins = Pins::default();
        pin_block(&mut pins, 15..20, 10..20);
        assert_eq!(free_of(&pins, 0..40), [0..10, 20..40]);
        pin_block(&mut pins, 15..35, 10..40);
        assert!(pins.touch(39..40) && !pins.touch(40..50) && !pins.touch(0..10));
        assert_eq!(free_of(&pins, 0..60), [0..10, 40..60]);
        let key = PinKey::Block(15);
        assert_eq!(is_last(&mut pins, key), Some(false));
        assert_eq!(free_of(&pins, 10..40), []);
        assert_eq!(pins.unpin(key), Some(Some(10..40)));
        assert_eq!(pins.unpin(key), None);
        assert!(!pins.touch(0..40));
        assert!(pins.pieces.is_empty() && pins.by_key.is_empty());
    }

    #[test]
    fn ranges_of_one_start_end_each_by_itself() {
        let mut pins = Pins::default();
        let (long, short) = (PinKey::Range(10, 40), PinKey::Range(10, 20));
        pins.pin(long, 10..40, 10..40);
        pins.pin(short, 10..20, 10..20);
        pin_block(&mut pins, 10..15, 10..15);
        assert_eq!(is_last(&mut pins, long), Some(true));
        assert_eq!(free_of(&pins, 0..60), [0..10, 20..60]);
        assert_eq!(pins.unpin(long), None);
        assert_eq!(is_last(&mut pins, short), Some(true));
        assert_eq!(pins.bytes, 5);
    }

    #[test]
    fn a_handle_that_two_blocks_share_stays_pinned_for_the_other() {
        let mut pins = Pins::default();
        pin_block(&mut pins, 0..15, 0..20);
        pin_block(&mut pins, 15..30, 10..30);
        assert_eq!(is_last(&mut pins, PinKey::Block(0)), Some(true));
        assert_eq!(free_of(&pins, 0..40), [0..10, 30..40]);
    }

    /// Against a count for each byte. A pin has few pieces to look at, however many there are.
    #[test]
    fn any_pins_cover_what_each_covers() {
        let (mut pins, mut covered) = (Pins::default(), [0_u32; 200]);
        let key = |range: &Range<u64>| PinKey::Range(range.start, range.end);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for n in 0_u64..2000 {
            let start = n * 7919 % 150;
            if n % 3 == 2 {
                let range = ranges.swap_remove(start as usize % ranges.len());
                pins.unpin(key(&range)).unwrap();
                range.for_each(|byte| covered[byte as usize] -= 1);
            } else if ranges.len() < 40 {
                let range = start..start + 1 + n * 31 % 50;
                pins.pin(key(&range), range.clone(), range.clone());
                range.clone().for_each(|byte| covered[byte as usize] += 1);
                ranges.push(range);
            }
            let free = (0..200).filter(|&byte| covered[byte as usize] == 0);
            assert!(free_of(&pins, 0..200).into_iter().flatten().eq(free));
            assert_eq!(pins.bytes, covered.iter().filter(|&&pins| pins > 0).count() as u64);
            let changes = covered.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert_eq!(pins.pieces.len(), changes + usize::from(covered[0] > 0));
        }
    }

    #[test]
    fn thousands_of_pins_in_one_handle_are_one_piece() {
        let mut pins = Pins::default();
        let pinned = |n: u64| 10_000 + n..10_001 + n;
        for n in 0..5000 {
            pin_block(&mut pins, pinned(n), 10_000..20_000);
        }
        assert_eq!((pins.pieces.len(), pins.bytes), (2, 10_000));
        for n in (0..5000).rev() {
            assert_eq!(is_last(&mut pins, PinKey::Block(pinned(n).start)), Some(true));
        }
        assert_eq!((pins.pieces.len(), pins.bytes), (0, 0));
    }
}
