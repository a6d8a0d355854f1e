//! [`IntervalMap`]: values over ranges of numbers, where a later value replaces an earlier one.
//!
//! Invariant: ranges are not empty and do not overlap. Own code, because the oracle asks for "all
//! that overlaps, clipped" and "replace", which ordered maps of libraries answer piecemeal.

use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct IntervalMap<V> {
    /// Start -> (end, value).
    ranges: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for IntervalMap<V> {
    fn default() -> Self {
        Self { ranges: BTreeMap::new() }
    }
}

impl<V: Clone> IntervalMap<V> {
    /// All that overlaps `start..end`, as (start, end, value), clipped to it.
    pub(crate) fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, &V)> {
        let below = self.ranges.range(..start).next_back();
        let below = below.filter(move |(_, (below_end, _))| *below_end > start);
        let inside = self.ranges.range(start..end.max(start));
        below
            .into_iter()
            .chain(inside)
            .map(move |(&from, (to, value))| (from.max(start), (*to).min(end), value))
    }

    pub(crate) fn assign(&mut self, start: u64, end: u64, value: V) {
        self.erase(start, end);
        if start < end {
            self.ranges.insert(start, (end, value));
        }
    }

    pub(crate) fn erase(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        while let Some((&from, _)) = self.ranges.range(start..end.max(start)).next() {
            self.ranges.remove(&from);
        }
    }

    /// Calls `change` on every value that overlaps `start..end`, for the part inside only.
    pub(crate) fn update(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut V)) {
        self.split(start);
        self.split(end);
        for (_, (_, value)) in self.ranges.range_mut(start..end.max(start)) {
            change(value);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Makes `at` a border.
    fn split(&mut self, at: u64) {
        let Some((_, (end, value))) = self.ranges.range_mut(..at).next_back() else { return };
        if *end > at {
            let rest = (std::mem::replace(end, at), value.clone());
            self.ranges.insert(at, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IntervalMap;
    use crate::Rng;

    #[test]
    fn agrees_with_an_array_of_cells() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let mut map = IntervalMap::<u64>::default();
            let mut cells = [None; 64];
            for step in 0..200 {
                let start = rng.below(64);
                let end = start + rng.up_to(64 - start);
                let part = start as usize..end as usize;
                match rng.below(3) {
                    0 => {
                        map.assign(start, end, step);
                        cells[part].fill(Some(step));
                    }
                    1 => {
                        map.erase(start, end);
                        cells[part].fill(None);
                    }
                    _ => {
                        map.update(start, end, |value| *value += 1000);
                        cells[part].iter_mut().flatten().for_each(|value| *value += 1000);
                    }
                }
                let (from, to) = (rng.below(32), 32 + rng.below(32));
                let mut seen = [None; 64];
                for (low, high, &value) in map.overlapping(from, to) {
                    assert!(from <= low && low < high && high <= to, "seed {seed} step {step}");
                    seen[low as usize..high as usize].fill(Some(value));
                }
                for at in from..to {
                    let at = at as usize;
                    assert_eq!(seen[at], cells[at], "seed {seed} step {step} at {at}");
                }
            }
        }
    }
}
