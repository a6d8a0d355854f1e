//! How many addresses a mapped segment reserves.
//!
//! Addresses cost nothing until memory is mapped there, but a process has 128 TiB of them, for all
//! its devices, pools and streams.

use crate::policy::SizeClass;
use crate::size::round_up;

/// Addresses that a heap has reserved already, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reserved {
    /// All of them, except those that a program asked for.
    pub(crate) all_bytes: u64,
    /// Those for the same use of one list: homes, or windows.
    pub(crate) own_bytes: u64,
}

/// While a heap has reserved less than so many times the device's memory, it asks for room for the
/// whole device. Eight devices of 288 GiB come to 36 TiB so, of the 128 TiB that a process has.
const WHOLE_DEVICES: u64 = 16;

/// The first reservation of a list after that has room for so many requests like its first. As all
/// that is held fits the device, all lists together have room for so many devices at most.
const FIRST_REQUESTS: u64 = 8;

/// Bytes of addresses to reserve for a mapped segment that must hold `bytes`; `None` beyond the
/// range of sizes.
///
/// Large blocks of one stream get room for the whole device at once, so that they share one
/// segment and merge. Small ones get an eighth, which no program seen has filled. Where many lists
/// have reserved a lot together, each gets as much again as it has: it can come to whatever size by
/// few reservations, and what it has reserved follows what it needs.
pub(crate) fn bytes(
    class: SizeClass,
    bytes: u64,
    reserved: Reserved,
    device_bytes: u64,
    granule_bytes: u64,
) -> Option<u64> {
    let whole = match class {
        SizeClass::Small => device_bytes / 8,
        SizeClass::Large => device_bytes,
    };
    let bytes = round_up(bytes, granule_bytes)?;
    let most = WHOLE_DEVICES.saturating_mul(device_bytes);
    let more = match reserved.own_bytes {
        _ if reserved.all_bytes.saturating_add(whole) <= most => whole,
        0 => bytes.saturating_mul(FIRST_REQUESTS).min(whole),
        own_bytes => own_bytes.min(whole),
    };
    round_up(more.max(bytes), granule_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn reservations_have_room_for_the_device_and_for_the_request() {
        let none = Reserved::default();
        let reserve = |class, needed| bytes(class, needed, none, 80 * MIB, 2 * MIB);
        assert_eq!(reserve(SizeClass::Large, 512), Some(80 * MIB));
        assert_eq!(reserve(SizeClass::Large, 80 * MIB + 512), Some(82 * MIB));
        assert_eq!(reserve(SizeClass::Small, 512), Some(10 * MIB));
        assert_eq!(bytes(SizeClass::Small, 512, none, 0, 2 * MIB), Some(2 * MIB));
        assert_eq!(reserve(SizeClass::Large, u64::MAX), None);
    }

    #[test]
    fn where_much_is_reserved_a_list_gets_as_much_again_as_it_has() {
        let all_bytes = 16 * 80 * MIB;
        let reserve = |own_bytes, needed| {
            let reserved = Reserved { all_bytes, own_bytes };
            bytes(SizeClass::Large, needed, reserved, 80 * MIB, 2 * MIB)
        };
        assert_eq!(reserve(0, 512), Some(16 * MIB));
        assert_eq!(reserve(0, 7 * MIB), Some(64 * MIB));
        assert_eq!(reserve(0, 20 * MIB), Some(80 * MIB), "no more than the whole device");
        assert_eq!(reserve(16 * MIB, 512), Some(16 * MIB));
        assert_eq!(reserve(32 * MIB, 512), Some(32 * MIB));
        assert_eq!(reserve(32 * MIB, 70 * MIB), Some(70 * MIB));
    }
}
