//! Sizes: what a request is rounded to, which of the two pools serves it, how large a segment is.
//!
//! Invariant: a rounded size is a positive multiple of [`MIN_BLOCK_BYTES`] and not below the
//! request. Requests of [`LIMIT_BYTES`] and more never get here, so nothing overflows.

use super::config::{Config, INTERVALS};

pub(super) const MIN_BLOCK_BYTES: u64 = 512;
/// Rounded requests up to this size belong to the small pool, in bytes.
pub(super) const SMALL_REQUEST_BYTES: u64 = 1 << 20;
/// Segments of the small pool, in bytes.
pub(super) const SMALL_SEGMENT_BYTES: u64 = 2 << 20;
/// From this size on a request gets a segment of its own, in bytes.
const OWN_SEGMENT_BYTES: u64 = 10 << 20;
/// Own segments are multiples of this, in bytes.
const OWN_SEGMENT_MULTIPLE: u64 = 2 << 20;
/// A request of an exbibyte or more is refused without a look at the pools.
pub(super) const LIMIT_BYTES: u64 = 1 << 60;

/// The first interval of `roundup_power2_divisions` begins at two to this power (1 MiB).
const FIRST_INTERVAL: u32 = 20;

/// The size of the block that serves a request of `bytes`.
pub(super) fn round_request(bytes: u64, config: &Config) -> u64 {
    if bytes < MIN_BLOCK_BYTES {
        return MIN_BLOCK_BYTES;
    }
    let divisions = u64::from(config.roundup_divisions[interval(bytes)]);
    if divisions > 1 && bytes > MIN_BLOCK_BYTES * divisions {
        let step = (1 << bytes.ilog2()) / divisions;
        bytes.next_multiple_of(step)
    } else {
        bytes.next_multiple_of(MIN_BLOCK_BYTES)
    }
}

/// Which entry of `roundup_power2_divisions` a size falls under.
fn interval(bytes: u64) -> usize {
    (bytes.ilog2().saturating_sub(FIRST_INTERVAL) as usize).min(INTERVALS - 1)
}

/// Whether a rounded size belongs to the small pool.
pub(super) const fn is_small(rounded_bytes: u64) -> bool {
    rounded_bytes <= SMALL_REQUEST_BYTES
}

/// What `cudaMalloc` is asked for when nothing cached serves a rounded size.
pub(super) const fn segment_bytes(rounded_bytes: u64, config: &Config) -> u64 {
    if is_small(rounded_bytes) {
        SMALL_SEGMENT_BYTES
    } else if rounded_bytes < OWN_SEGMENT_BYTES {
        config.large_segment_bytes
    } else {
        rounded_bytes.next_multiple_of(OWN_SEGMENT_MULTIPLE)
    }
}

/// The size of one handle in an expandable segment.
pub(super) const fn handle_bytes(is_small_pool: bool, config: &Config) -> u64 {
    if is_small_pool { SMALL_SEGMENT_BYTES } else { config.large_segment_bytes }
}

#[cfg(test)]
mod tests {
    use super::{interval, round_request};
    use crate::torch::Config;

    const MIB: u64 = 1 << 20;

    fn config(text: &str) -> Config {
        Config::parse(text).unwrap()
    }

    #[test]
    fn divisions_round_to_a_fraction_of_the_power_of_two_below() {
        let config = config("roundup_power2_divisions:4");
        // 1200 is not above 512 x 4: plain rounding.
        assert_eq!(round_request(1200, &config), 1536);
        assert_eq!(round_request(2048, &config), 2048);
        // Between 2048 and 4096 in steps of 512; between 4096 and 8192 in steps of 1024.
        assert_eq!(round_request(2049, &config), 2560);
        assert_eq!(round_request(4097, &config), 5120);
        // 1200 MiB: steps of 256 MiB above 1024 MiB.
        assert_eq!(round_request(1200 * MIB, &config), 1280 * MIB);
        assert_eq!(round_request(2047 * MIB, &config), 2048 * MIB);
    }

    #[test]
    fn a_list_applies_each_value_to_its_own_interval() {
        let config = config("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
        assert_eq!(round_request(300 * MIB + 1, &config), 300 * MIB + 512);
        assert_eq!(round_request(513 * MIB, &config), 768 * MIB);
        assert_eq!(round_request(1025 * MIB, &config), 1280 * MIB);
        assert_eq!(round_request(2049 * MIB, &config), 2304 * MIB);
        assert_eq!(round_request(3 * MIB + 1, &config), 3 * MIB + 512);
    }

    #[test]
    fn intervals_end_at_both_sides() {
        assert_eq!([interval(512), interval(MIB), interval(2 * MIB - 1)], [0, 0, 0]);
        assert_eq!([interval(2 * MIB), interval(32768 * MIB)], [1, 15]);
        assert_eq!(interval(1 << 59), 15);
    }
}
