//! [`AddressSpace`]: hands out address ranges, best fit, and merges what comes back.
//!
//! Best fit gives a range just returned out again to the next request of its size: whoever keeps
//! a stale address meets other memory behind it. Invariant: the two indexes hold the same free
//! ranges, and no two of them touch.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(crate) struct AddressSpace {
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl AddressSpace {
    pub(crate) fn new(address: u64, bytes: u64) -> Self {
        let mut space = Self { by_address: BTreeMap::new(), by_size: BTreeSet::new() };
        space.insert(address, bytes);
        space
    }

    /// A range of `bytes` whose start is a multiple of `align` (a power of two).
    pub(crate) fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let fits = |&(size, start): &(u64, u64)| {
            let aligned = start.checked_next_multiple_of(align)?;
            let room = (aligned - start).checked_add(bytes).is_some_and(|need| need <= size);
            room.then_some((start, size, aligned))
        };
        let (start, size, address) = self.by_size.range((bytes, 0)..).find_map(fits)?;
        self.by_address.remove(&start);
        self.by_size.remove(&(size, start));
        self.insert(start, address - start);
        self.insert(address + bytes, start + size - (address + bytes));
        Some(address)
    }

    pub(crate) fn give(&mut self, address: u64, bytes: u64) {
        let (mut start, mut end) = (address, address + bytes);
        let below = self.by_address.range(..address).next_back().map(|(&at, &size)| (at, size));
        if let Some((at, size)) = below.filter(|&(at, size)| at + size == start) {
            self.remove(at, size);
            start = at;
        }
        if let Some(&size) = self.by_address.get(&end) {
            self.remove(end, size);
            end += size;
        }
        self.insert(start, end - start);
    }

    fn insert(&mut self, address: u64, bytes: u64) {
        if bytes > 0 {
            self.by_address.insert(address, bytes);
            self.by_size.insert((bytes, address));
        }
    }

    fn remove(&mut self, address: u64, bytes: u64) {
        self.by_address.remove(&address);
        self.by_size.remove(&(bytes, address));
    }
}

#[cfg(test)]
mod tests {
    use super::AddressSpace;
    use crate::Rng;

    #[test]
    fn ranges_never_overlap_and_all_merge_back_into_one() {
        const ALL: u64 = 1 << 20;
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut space = AddressSpace::new(ALL, ALL);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for _ in 0..300 {
                if rng.chance(60) {
                    let (bytes, align) = (1 + rng.below(20_000), 1 << rng.below(13));
                    let Some(address) = space.take(bytes, align) else { continue };
                    assert_eq!(address % align, 0, "seed {seed}");
                    assert!(address >= ALL && address + bytes <= 2 * ALL, "seed {seed}");
                    for &(other, size) in &held {
                        assert!(address + bytes <= other || other + size <= address, "seed {seed}");
                    }
                    held.push((address, bytes));
                } else if !held.is_empty() {
                    let (address, bytes) = held.swap_remove(rng.below(held.len() as u64) as usize);
                    space.give(address, bytes);
                }
            }
            for (address, bytes) in held {
                space.give(address, bytes);
            }
            assert_eq!(space.take(ALL, 1), Some(ALL), "seed {seed}");
            assert_eq!(space.take(1, 1), None, "seed {seed}");
        }
    }

    #[test]
    fn a_range_given_back_is_the_next_one_of_its_size() {
        let mut space = AddressSpace::new(0x1000, 0x10_0000);
        let first = space.take(0x1000, 0x1000).unwrap();
        let _second = space.take(0x1000, 0x1000).unwrap();
        space.give(first, 0x1000);
        assert_eq!(space.take(0x1000, 0x1000), Some(first));
        assert_eq!(space.take(u64::MAX, 1), None);
        assert_eq!(space.take(1, 1 << 63), None);
    }
}
