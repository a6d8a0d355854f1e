//! Bins: size classes, and the two-level bitmap that finds the next bin with a block in it.
//!
//! A size in quanta is a small floating-point number: its octave is the bitmap word, its six
//! leading bits after the first are the bit. Below 128 quanta every size has its own bin; above,
//! bins are at most 1/64 wide. Blocks are filed by rounding down and asked for by rounding up.
//! Keeps I4: every block in bin *b* satisfies every request of bin *b*.

use crate::size::{BYTES_MAX, QUANTUM};

/// log2 of the number of bins in an octave. Six, so that an octave is one bitmap word.
const OCTAVE_BITS: u32 = 6;
const OCTAVE_BINS: u32 = 1 << OCTAVE_BITS;
/// The largest size, in quanta.
const QUANTA_MAX: u64 = BYTES_MAX / QUANTUM;
/// Words of the bitmap: the exact sizes, one for each octave above them.
const WORDS: usize = (QUANTA_MAX.ilog2() - OCTAVE_BITS + 2) as usize;
/// Number of bins.
pub(crate) const BINS: usize = WORDS * OCTAVE_BINS as usize;

const _: () = assert!(OCTAVE_BINS == u64::BITS && WORDS <= u64::BITS as usize);

/// A size class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bin(pub(crate) u16);

impl Bin {
    /// The bin that a block of this size is filed in: the last whose requests it all satisfies.
    #[inline]
    pub(crate) const fn of_block(bytes: u64) -> Bin {
        Bin::around(bytes).0
    }

    /// The bin that a request of this size falls into, some of whose blocks may satisfy it, and the
    /// first bin all of whose blocks do: the same if the size is the smallest of the bin, else the
    /// next.
    #[inline]
    pub(crate) const fn around(bytes: u64) -> (Bin, Bin) {
        let quanta = bytes / QUANTUM;
        if quanta < 2 * OCTAVE_BINS as u64 {
            let exact = Bin(quanta as u16);
            return (exact, exact);
        }
        let shift = quanta.ilog2() - OCTAVE_BITS;
        let leading = quanta >> shift;
        // The leading one counts as one octave: hence no `+ 1`.
        let floor = ((shift << OCTAVE_BITS) + leading as u32) as u16;
        // The next bin may be in the next octave, as it should.
        (Bin(floor), Bin(floor + (leading << shift != quanta) as u16))
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which bins hold a block. Keeps I5 together with the free list that owns it.
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    /// Bit *w* is set when `words[w]` is not zero.
    pub(crate) top: u64,
    words: [u64; WORDS],
}

impl Bitmap {
    pub(crate) const fn new() -> Self {
        Self { top: 0, words: [0; WORDS] }
    }

    #[inline]
    pub(crate) fn set(&mut self, bin: Bin) {
        let word = bin.index() >> OCTAVE_BITS;
        self.words[word] |= 1 << (bin.index() as u32 % OCTAVE_BINS);
        self.top |= 1 << word;
    }

    #[inline]
    pub(crate) fn clear(&mut self, bin: Bin) {
        let word = bin.index() >> OCTAVE_BITS;
        self.words[word] &= !(1 << (bin.index() as u32 % OCTAVE_BINS));
        if self.words[word] == 0 {
            self.top &= !(1 << word);
        }
    }

    /// The first bin at or above `bin` that holds a block.
    #[inline]
    pub(crate) fn first_from(&self, bin: Bin) -> Option<Bin> {
        let word = bin.index() >> OCTAVE_BITS;
        if word >= WORDS {
            return None;
        }
        let here = self.words[word] & (u64::MAX << (bin.index() as u32 % OCTAVE_BINS));
        if here != 0 {
            return Some(Bin((word as u32 * OCTAVE_BINS + here.trailing_zeros()) as u16));
        }
        // `word < WORDS <= 63` or the shift below would be too long; WORDS is 34.
        let above = self.top & (u64::MAX << word << 1);
        if above == 0 {
            return None;
        }
        let word = above.trailing_zeros();
        let bit = self.words[word as usize].trailing_zeros();
        Some(Bin((word * OCTAVE_BINS + bit) as u16))
    }

    /// The last bin that holds a block.
    pub(crate) fn last(&self) -> Option<Bin> {
        self.last_to(Bin(BINS as u16 - 1))
    }

    /// The last bin at or below `bin` that holds a block.
    pub(crate) fn last_to(&self, bin: Bin) -> Option<Bin> {
        let word = bin.index() >> OCTAVE_BITS;
        let above = OCTAVE_BINS - 1 - bin.index() as u32 % OCTAVE_BINS;
        let here = self.words[word] & (u64::MAX >> above);
        if let Some(bit) = here.checked_ilog2() {
            return Some(Bin((word as u32 * OCTAVE_BINS + bit) as u16));
        }
        let word = (self.top & ((1 << word) - 1)).checked_ilog2()?;
        let bit = self.words[word as usize].checked_ilog2()?;
        Some(Bin((word * OCTAVE_BINS + bit) as u16))
    }

    /// Whether the top level says of every word what the word says.
    pub(crate) fn levels_agree(&self) -> bool {
        let says = |word: usize| self.top & (1 << word) != 0;
        self.words.iter().enumerate().all(|(word, &bits)| says(word) == (bits != 0))
            && self.top >> WORDS == 0
    }

    #[inline]
    pub(crate) fn contains(&self, bin: Bin) -> bool {
        let word = bin.index() >> OCTAVE_BITS;
        self.words[word] & (1 << (bin.index() as u32 % OCTAVE_BINS)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every size near a bin's edge: all bins are visited, with their first and last sizes.
    fn interesting_quanta() -> Vec<u64> {
        let mut quanta: Vec<u64> = (1..=4096).collect();
        for octave in 6..=QUANTA_MAX.ilog2() {
            for sub in 0..u64::from(OCTAVE_BINS) {
                let edge = (1 << octave) + (sub << (octave - OCTAVE_BITS));
                quanta.extend([edge - 1, edge, edge + 1]);
            }
        }
        quanta.retain(|&q| q > 0 && q <= QUANTA_MAX);
        quanta
    }

    /// I4, B37: a block never stands in a bin that has a larger request.
    #[test]
    fn b37_every_block_of_a_bin_serves_every_request_of_it() {
        let quanta = interesting_quanta();
        let mut smallest_block = vec![u64::MAX; BINS];
        let mut largest_request = vec![0; BINS];
        for &q in &quanta {
            let block = Bin::of_block(q * QUANTUM).index();
            smallest_block[block] = smallest_block[block].min(q);
            let request = Bin::around(q * QUANTUM).1.index();
            largest_request[request] = largest_request[request].max(q);
            assert!(request < BINS);
        }
        for bin in 0..BINS {
            assert!(largest_request[bin] <= smallest_block[bin], "bin {bin}");
        }
    }

    #[test]
    fn bins_grow_with_size_and_are_at_most_a_64th_wide() {
        let mut quanta = interesting_quanta();
        quanta.sort_unstable();
        for pair in quanta.windows(2) {
            assert!(Bin::of_block(pair[0] * QUANTUM) <= Bin::of_block(pair[1] * QUANTUM));
            assert!(Bin::around(pair[0] * QUANTUM).1 <= Bin::around(pair[1] * QUANTUM).1);
        }
        for q in quanta {
            let (down, up) = (Bin::of_block(q * QUANTUM), Bin::around(q * QUANTUM).1);
            assert!(up.0 - down.0 <= 1);
        }
    }

    #[test]
    fn bitmap_finds_the_next_set_bin() {
        let mut bitmap = Bitmap::new();
        assert_eq!(bitmap.first_from(Bin(0)), None);
        for bin in [3, 64, 65, 500, BINS as u16 - 1] {
            bitmap.set(Bin(bin));
        }
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(bin) = bitmap.first_from(Bin(from)) {
            found.push(bin.0);
            from = bin.0 + 1;
        }
        assert_eq!(found, [3, 64, 65, 500, BINS as u16 - 1]);
        for (to, last) in [(2, None), (3, Some(3)), (63, Some(3)), (64, Some(64)), (499, Some(65))]
        {
            assert_eq!(bitmap.last_to(Bin(to)), last.map(Bin), "{to}");
        }
        for bin in found {
            assert!(bitmap.contains(Bin(bin)));
            bitmap.clear(Bin(bin));
        }
        assert_eq!(bitmap.first_from(Bin(0)), None);
        assert_eq!(bitmap.top, 0);
        assert_eq!(bitmap.first_from(Bin(BINS as u16)), None);
    }
}
