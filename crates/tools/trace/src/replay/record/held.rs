//! Which addresses have memory behind them, and how that has changed between two address maps.
//!
//! Invariant: runs are sorted by address and do not overlap.

use std::ops::Range;

use crate::replay::layout::{BlockState, Layout, LayoutSegment};

/// A run of addresses with memory behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) stream: u16,
    pub(super) pool: u8,
    pub(super) is_expandable: bool,
}

impl Held {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}

/// The runs of a layout: its segments without their unmapped parts, by address.
pub(super) fn held(layout: &Layout) -> Vec<Held> {
    layout.segments.iter().flat_map(runs).map(|(held, _)| held).collect()
}

/// The runs of one segment, each with the range of its blocks.
pub(super) fn runs(segment: &LayoutSegment) -> Vec<(Held, Range<usize>)> {
    let mut runs: Vec<(Held, Range<usize>)> = Vec::new();
    for (index, block) in segment.blocks.iter().enumerate() {
        if block.state == BlockState::Unmapped {
            continue;
        }
        match runs.last_mut().filter(|(_, range)| range.end == index) {
            Some((held, range)) => {
                held.bytes += block.bytes;
                range.end = index + 1;
            }
            None => {
                let held = Held {
                    address: block.address,
                    bytes: block.bytes,
                    stream: segment.stream,
                    pool: segment.pool,
                    is_expandable: segment.is_expandable,
                };
                runs.push((held, index..index + 1));
            }
        }
    }
    runs
}

/// The parts of `left` that `right` does not cover; both sorted and without overlaps. A segment
/// that does not grow by mapping comes and goes whole.
pub(super) fn without(left: &[Held], right: &[Held]) -> Vec<Held> {
    let mut rest = Vec::new();
    let mut others = right.iter().peekable();
    for held in left {
        let mut at = held.address;
        while let Some(other) = others.peek() {
            if other.end() <= at {
                others.next();
                continue;
            }
            if other.address >= held.end() {
                break;
            }
            if other.address > at {
                rest.push(Held { address: at, bytes: other.address - at, ..*held });
            }
            at = other.end();
            if at >= held.end() {
                break;
            }
        }
        if at < held.end() {
            rest.push(Held { address: at, bytes: held.end() - at, ..*held });
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::{Held, held, without};
    use crate::replay::{BlockState, Layout, LayoutBlock, LayoutSegment};

    fn run(address: u64, bytes: u64) -> Held {
        Held { address, bytes, stream: 0, pool: 0, is_expandable: true }
    }

    #[test]
    fn what_is_mapped_more_or_less_is_found_piece_by_piece() {
        let (all, part) = ([run(0, 100), run(200, 100)], [run(20, 10), run(90, 150)]);
        let rest = [run(0, 20), run(30, 60), run(240, 60)];
        assert_eq!(without(&all, &part), rest);
        assert_eq!(without(&part, &all), [run(100, 100)]);
        assert_eq!(without(&all, &[]), all);
        assert_eq!(without(&all, &all), []);
        assert_eq!(without(&[run(0, 50), run(50, 50)], &[run(40, 20)]), [run(0, 40), run(60, 40)]);
    }

    #[test]
    fn unmapped_parts_are_not_held() {
        let block = |address, state| LayoutBlock {
            address,
            bytes: 10,
            requested_bytes: 0,
            stream: 0,
            state,
        };
        let blocks = vec![
            block(0, BlockState::Unmapped),
            block(10, BlockState::Live),
            block(20, BlockState::Free),
            block(30, BlockState::Unmapped),
            block(40, BlockState::Pending),
        ];
        let segment =
            LayoutSegment { bytes: 50, is_expandable: true, blocks, ..Default::default() };
        assert_eq!(held(&Layout { segments: vec![segment] }), [run(10, 20), run(40, 10)]);
    }
}
