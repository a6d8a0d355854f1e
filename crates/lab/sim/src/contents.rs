//! [`Contents`]: whose bytes lie where in physical memory, as kernels write them and copies move
//! them.
//!
//! Invariant: what a block wrote last, it reads again, whatever memory is behind its addresses by
//! then: memory that was changed without a copy, copied in part, to the wrong place or before the
//! last write does not hold it.

use crate::interval_map::IntervalMap;
use crate::memory::Piece;

/// Whose bytes these are, of which of its writes, and how far their addresses are from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    block: u64,
    write: u64,
    distance: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Contents {
    by_physical: IntervalMap<Stamp>,
}

impl Contents {
    /// A block writes all of its bytes, not for the first time.
    pub(crate) fn write(&mut self, block: u64, write: u64, pieces: &[Piece]) {
        for piece in pieces {
            let stamp = Stamp { block, write, distance: distance(piece.address, piece.physical) };
            self.by_physical.assign(piece.physical, piece.physical + piece.bytes, stamp);
        }
    }

    /// Whether all bytes of a block are there, of this write.
    pub(crate) fn hold(&self, block: u64, write: u64, pieces: &[Piece]) -> bool {
        pieces.iter().all(|piece| {
            let (mut at, end) = (piece.physical, piece.physical + piece.bytes);
            let own = Stamp { block, write, distance: distance(piece.address, piece.physical) };
            for (from, to, &stamp) in self.by_physical.overlapping(at, end) {
                if from != at || stamp != own {
                    return false;
                }
                at = to;
            }
            at == end
        })
    }

    /// What is at some addresses is copied to others.
    pub(crate) fn copy(&mut self, from: &[Piece], to: &[Piece]) {
        let start = |pieces: &[Piece]| pieces.first().map_or(0, |piece| piece.address);
        let shift = start(to).wrapping_sub(start(from));
        let mut copied = Vec::new();
        for piece in from {
            let (first, end) = (piece.physical, piece.physical + piece.bytes);
            for (from, to, &stamp) in self.by_physical.overlapping(first, end) {
                let address = piece.address + (from - first);
                copied.push((address.wrapping_add(shift), from, to - from, stamp));
            }
        }
        for piece in to {
            self.by_physical.erase(piece.physical, piece.physical + piece.bytes);
        }
        for (address, from, bytes, stamp) in copied {
            self.put(
                to,
                (address, bytes),
                Stamp { distance: stamp.distance.wrapping_add(from), ..stamp },
            );
        }
    }

    /// Puts copied bytes behind some addresses. Of the stamp the distance is the address where the
    /// first of them was written.
    fn put(&mut self, to: &[Piece], (address, bytes): (u64, u64), stamp: Stamp) {
        for piece in to {
            let start = address.max(piece.address);
            let end = (address + bytes).min(piece.address + piece.bytes);
            if start < end {
                let physical = piece.physical + (start - piece.address);
                let written_at = stamp.distance.wrapping_add(start - address);
                let stamp = Stamp { distance: distance(written_at, physical), ..stamp };
                self.by_physical.assign(physical, physical + (end - start), stamp);
            }
        }
    }

    /// Physical bytes that will never be seen again.
    pub(crate) fn gone(&mut self, physical: u64, bytes: u64) {
        self.by_physical.erase(physical, physical + bytes);
    }
}

const fn distance(address: u64, physical: u64) -> u64 {
    address.wrapping_sub(physical)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn piece(address: u64, physical: u64, bytes: u64) -> Piece {
        Piece { address, physical, bytes }
    }

    #[test]
    fn a_whole_copy_of_the_last_write_is_as_good_as_the_bytes() {
        let mut contents = Contents::default();
        let home = [piece(1000, 40, 20), piece(1020, 90, 10)];
        contents.write(7, 0, &home);
        assert!(contents.hold(7, 0, &home) && !contents.hold(8, 0, &home));
        // To scratch addresses first, which are mapped at home later.
        contents.copy(&home, &[piece(5000, 300, 5), piece(5005, 400, 25)]);
        let moved = [piece(1000, 300, 5), piece(1005, 400, 25)];
        assert!(contents.hold(7, 0, &moved));
        contents.write(7, 1, &home);
        assert!(!contents.hold(7, 1, &moved), "copied too early");
    }

    #[test]
    fn half_a_copy_or_one_to_the_wrong_place_is_none() {
        let mut contents = Contents::default();
        let home = [piece(1000, 40, 20)];
        contents.write(7, 0, &home);
        contents.copy(&[piece(1000, 40, 10)], &[piece(5000, 300, 10)]);
        assert!(!contents.hold(7, 0, &[piece(1000, 300, 20)]));
        contents.copy(&home, &[piece(5001, 301, 20)]);
        assert!(!contents.hold(7, 0, &[piece(1000, 300, 20)]));
        contents.copy(&home, &[piece(5000, 300, 20)]);
        contents.gone(310, 1);
        assert!(!contents.hold(7, 0, &[piece(1000, 300, 20)]));
    }
}
