//! Pins: memory that stays where it is, whoever frees it.
//!
//! Who gave an address to a network card, to NCCL or to another process pins the block there. I16:
//! every handle that a pin covers a byte of backs the same addresses until the last such pin is
//! taken back, also once the block is free: it is not remapped, not sent home and not released. It
//! serves requests of its own free list as ever.

use std::iter::once;
use std::ops::Range;

/// What was pinned at an address: where it ends, what that covers, and how often it was.
#[derive(Clone, Debug)]
struct Pinned {
    address: u64,
    end: u64,
    covered: Range<u64>,
    times: u64,
}

/// What is pinned.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// By address.
    pinned: Vec<Pinned>,
    /// The whole handles that are covered, joined, by address.
    covered: Vec<Range<u64>>,
}

impl Pins {
    /// Adds a pin of addresses, which lie in these whole handles.
    pub(crate) fn pin(&mut self, addresses: Range<u64>, covered: Range<u64>) {
        let Range { start: address, end } = addresses;
        assert!(address < end, "a pin of nothing");
        assert!(covered.start <= address && end <= covered.end, "a pin covers less than its block");
        match self.pinned.binary_search_by_key(&address, |pinned| pinned.address) {
            Ok(at) => {
                let pinned = &mut self.pinned[at];
                pinned.end = pinned.end.max(end);
                pinned.covered.end = pinned.covered.end.max(covered.end);
                pinned.times += 1;
            }
            Err(at) => self.pinned.insert(at, Pinned { address, end, covered, times: 1 }),
        }
        self.cover();
    }

    /// How many pins of an address are left; `None` if there was none.
    pub(crate) fn unpin(&mut self, address: u64) -> Option<u64> {
        let found = self.pinned.binary_search_by_key(&address, |pinned| pinned.address);
        let at = found.ok()?;
        assert!(self.pinned[at].times > 0, "a pin is kept that is over");
        self.pinned[at].times -= 1;
        let left = self.pinned[at].times;
        if left == 0 {
            self.pinned.remove(at);
            self.cover();
        }
        Some(left)
    }

    /// Joins what the pins cover.
    fn cover(&mut self) {
        self.covered.clear();
        for Pinned { covered, .. } in &self.pinned {
            match self.covered.last_mut() {
                Some(last) if covered.start <= last.end => last.end = last.end.max(covered.end),
                _ => self.covered.push(covered.clone()),
            }
        }
    }

    /// What of the covered ranges overlaps a range, in order.
    fn within(&self, Range { start, end }: Range<u64>) -> impl Iterator<Item = &Range<u64>> {
        let first = self.covered.partition_point(|covered| covered.end <= start);
        self.covered[first..].iter().take_while(move |covered| covered.start < end)
    }

    /// Whether anything in a range is pinned.
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

    /// What was pinned: start and end.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pinned.iter().map(|pinned| (pinned.address, pinned.end))
    }

    /// Bytes of the whole handles that are covered.
    pub(crate) fn bytes(&self) -> u64 {
        self.covered.iter().map(|covered| covered.end - covered.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::Pins;
    use std::ops::Range;

    fn free_of(pins: &Pins, addresses: Range<u64>) -> Vec<Range<u64>> {
        pins.free_of(addresses).collect()
    }

    #[test]
    fn pins_of_one_address_add_up_and_the_longest_counts() {
        let mut pins = Pins::default();
        pins.pin(15..20, 10..20);
        assert_eq!(free_of(&pins, 0..40), [0..10, 20..40]);
        pins.pin(15..35, 10..40);
        assert!(pins.touch(39..40) && !pins.touch(40..50) && !pins.touch(0..10));
        assert_eq!(free_of(&pins, 0..60), [0..10, 40..60]);
        assert_eq!(pins.unpin(15), Some(1));
        assert_eq!(free_of(&pins, 10..40), []);
        assert_eq!((pins.unpin(15), pins.unpin(15)), (Some(0), None));
        assert!(!pins.touch(0..40));
        assert!(pins.covered.is_empty() && pins.pinned.is_empty());
    }

    #[test]
    fn a_handle_that_two_blocks_share_stays_pinned_for_the_other() {
        let mut pins = Pins::default();
        pins.pin(0..15, 0..20);
        pins.pin(15..30, 10..30);
        pins.unpin(0);
        assert_eq!(free_of(&pins, 0..40), [0..10, 30..40]);
    }
}
