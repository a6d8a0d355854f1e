//! Sizes: the quantum, the largest size, and every rounding there is.
//!
//! Keeps I7 (sizes and offsets are multiples of the quantum, sizes are positive). All arithmetic
//! on sizes that can leave the range is here and checked; nothing else rounds.

use std::ops::Range;

/// Every block is a multiple of this many bytes: what CUDA promises of `cudaMalloc`'s alignment at
/// the most (256) doubled, and the same as PyTorch's, so that statistics compare.
pub const QUANTUM: u64 = 512;

/// The largest block, in bytes: all of CUDA's 47-bit address space.
pub const BYTES_MAX: u64 = 1 << 47;

/// The whole multiples of `unit`, a power of two, within a range; empty if there is none.
pub(crate) fn whole_units(start: u64, end: u64, unit: u64) -> Range<u64> {
    let end = round_down(end, unit);
    let start = round_up(start, unit).unwrap_or(end);
    start.min(end)..end
}

/// Adds a range to others in order: to the last, if it begins where that ends or before.
pub(crate) fn push_range<T: Ord + Copy>(ranges: &mut Vec<Range<T>>, range: Range<T>) {
    match ranges.last_mut() {
        Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
        _ => ranges.push(range),
    }
}

const _: () = assert!(QUANTUM.is_power_of_two() && BYTES_MAX.is_multiple_of(QUANTUM));

/// A size no block can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// Zero bytes.
    #[error("a block has at least one byte")]
    Zero,
    /// More than [`BYTES_MAX`].
    #[error("{bytes} bytes are more than the largest block, {BYTES_MAX} bytes")]
    TooLarge {
        /// The size asked for.
        bytes: u64,
    },
}

/// What of a range lies between others, which are in order and overlap it.
pub(crate) fn between(
    whole: &Range<u64>,
    within: impl Iterator<Item = Range<u64>> + Clone,
) -> Vec<Range<u64>> {
    let starts = std::iter::once(whole.start).chain(within.clone().map(|range| range.end));
    let ends = within.map(|range| range.start).chain(std::iter::once(whole.end));
    starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty()).collect()
}

/// Rounds up to a multiple of a power of two; `None` if that leaves `u64`.
#[inline]
pub const fn round_up(bytes: u64, multiple: u64) -> Option<u64> {
    debug_assert!(multiple.is_power_of_two());
    match bytes.checked_add(multiple - 1) {
        Some(sum) => Some(sum & !(multiple - 1)),
        None => None,
    }
}

/// Rounds down to a multiple of a power of two.
#[inline]
pub const fn round_down(bytes: u64, multiple: u64) -> u64 {
    debug_assert!(multiple.is_power_of_two());
    bytes & !(multiple - 1)
}

/// The size of the block that serves a request: the request in whole quanta.
///
/// # Errors
/// Zero, and anything above [`BYTES_MAX`].
#[inline]
pub const fn block_bytes(requested: u64) -> Result<u64, SizeError> {
    if requested == 0 {
        return Err(SizeError::Zero);
    }
    if requested > BYTES_MAX {
        return Err(SizeError::TooLarge { bytes: requested });
    }
    Ok((requested + (QUANTUM - 1)) & !(QUANTUM - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B36, B38: near every power of two and near 2^64.
    #[test]
    fn b36_rounding_never_wraps_and_never_lowers() {
        for power in 0..64 {
            for delta in -2i64..=2 {
                let bytes = (1u64 << power).wrapping_add_signed(delta);
                match block_bytes(bytes) {
                    Ok(block) => {
                        assert!(block >= bytes && block - bytes < QUANTUM && block > 0);
                        assert_eq!(block % QUANTUM, 0);
                    }
                    Err(SizeError::Zero) => assert_eq!(bytes, 0),
                    Err(SizeError::TooLarge { .. }) => assert!(bytes > BYTES_MAX),
                }
                if let Some(up) = round_up(bytes, 1 << 21) {
                    assert!(up >= bytes && up - bytes < 1 << 21);
                }
                assert!(round_down(bytes, 1 << 21) <= bytes);
            }
        }
        assert_eq!(block_bytes(u64::MAX), Err(SizeError::TooLarge { bytes: u64::MAX }));
        assert_eq!(round_up(u64::MAX, 512), None);
    }

    #[test]
    fn b38_aligned_values_stay() {
        for multiple in [512, 1 << 20, 1 << 21] {
            assert_eq!(round_up(3 * multiple, multiple), Some(3 * multiple));
            assert_eq!(round_down(3 * multiple, multiple), 3 * multiple);
        }
    }
}
