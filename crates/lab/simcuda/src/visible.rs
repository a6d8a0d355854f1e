//! `CUDA_VISIBLE_DEVICES`: which of the machine's devices a program sees, and in which order.
//!
//! A device's *place* is its number on the machine, as NVML counts; its ordinal is its number among
//! the visible ones. The rules are those of CUDA's programming guide: indices and beginnings of
//! unique names, and nothing from the first entry on that names no device. That an index ends where
//! its digits do, and that a list with a device twice shows none, is as PyTorch reads it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;

use crate::config::DEVICES_MAX;

/// The beginning of the name that NVML and `nvidia-smi` give a device.
const UNIQUE: &str = "GPU-";

/// The bytes of a unique number that differ between devices of the same place. The device is named
/// without them, too.
const WHOSE: Range<usize> = 11..15;

/// The unique number of the device at a place: of one that processes share by a file, the same in
/// each; else the process's own.
pub(crate) fn unique_number(place: usize, shared: Option<&Path>) -> [u8; 16] {
    let mut bytes = *b"drystone-simcud\0";
    let number = match shared {
        Some(path) => {
            let mut hasher = DefaultHasher::new();
            path.hash(&mut hasher);
            hasher.finish() as u32 | 1 << 31
        }
        None => std::process::id(),
    };
    bytes[WHOSE].copy_from_slice(&number.to_be_bytes());
    bytes[15] = place as u8;
    bytes
}

/// The places of the visible devices, in their order, among so many. Where devices are made for
/// whoever names them, every index is one.
pub(crate) fn places(list: Option<&str>, devices: usize, named_devices: bool) -> Vec<usize> {
    let Some(list) = list else { return (0..devices).collect() };
    let mut found = Vec::new();
    for entry in list.split(',') {
        let place = match entry.strip_prefix(UNIQUE) {
            Some(name) => by_name(name, devices),
            None => index(entry)
                .filter(|&place| place < if named_devices { DEVICES_MAX } else { devices }),
        };
        match place {
            Some(place) if found.contains(&place) => return Vec::new(),
            Some(place) => found.push(place),
            None => break,
        }
    }
    found
}

/// `2`, and what `strtoul` makes of more.
fn index(entry: &str) -> Option<usize> {
    let entry = entry.trim_start();
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// The one device whose name begins so.
fn by_name(beginning: &str, devices: usize) -> Option<usize> {
    let wanted: String = beginning.trim_end().replace('-', "").to_ascii_lowercase();
    let fits = |&place: &usize| {
        let name = unique_number(place, None).map(|byte| format!("{byte:02x}")).concat();
        let same = |(at, (a, b))| a == b || WHOSE.contains(&(at / 2));
        wanted.len() <= name.len() && name.bytes().zip(wanted.bytes()).enumerate().all(same)
    };
    let mut fitting = (0..devices).filter(fits);
    fitting.next().filter(|_| fitting.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::{places, unique_number};

    fn of_four(list: &str) -> Vec<usize> {
        places(Some(list), 4, false)
    }

    #[test]
    fn devices_come_in_the_order_of_the_list_up_to_the_first_that_is_not_there() {
        assert_eq!(places(None, 3, false), [0, 1, 2]);
        assert_eq!(of_four("2,1"), [2, 1]);
        assert_eq!(of_four("0,2,-1,1"), [0, 2]);
        assert_eq!(of_four("3,4,0"), [3]);
        assert_eq!(of_four(" 1gpu, +3"), [1, 3]);
        for none in ["", "-1", "cuda:1", "none", "0,1,0", "MIG-1"] {
            assert!(of_four(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn a_name_may_be_as_short_as_it_is_one_devices() {
        let third = "GPU-64727973-746f-6e65-2d73-696d63756402";
        assert_eq!(of_four(third), [2]);
        assert_eq!(of_four(&format!("1,{third},0")), [1, 2, 0]);
        assert!(of_four("GPU-64727973").is_empty(), "four devices' names begin so");
        assert_eq!(places(Some("GPU-6472"), 1, false), [0]);
        assert!(of_four("GPU-ffffffff").is_empty());
        assert_eq!(unique_number(2, None)[15], 2);
    }

    #[test]
    fn processes_that_share_a_device_know_it_by_one_number() {
        let of = |path: &str| unique_number(0, Some(path.as_ref()));
        assert_eq!(of("/dev/shm/a"), of("/dev/shm/a"));
        assert!(of("/dev/shm/a") != of("/dev/shm/b") && of("/dev/shm/a") != unique_number(0, None));
    }

    #[test]
    fn devices_may_be_there_because_they_are_named() {
        assert_eq!(places(Some("5,2"), 1, true), [5, 2]);
        assert!(places(Some("64"), 1, true).is_empty());
        assert!(places(Some(""), 1, true).is_empty());
        assert_eq!(places(None, 1, true), [0]);
    }
}
