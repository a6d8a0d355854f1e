//! Pins: pinned addresses lead to the same physical bytes, which outside of private pools back
//! nothing else (I16).

use std::ops::Range;

use drystone_core::PinKey;

use super::World;

/// What was pinned at an address.
#[derive(Clone, Debug)]
pub struct Pinned {
    bytes: u64,
    times: u64,
    pool: usize,
    physical: Vec<Range<u64>>,
}

fn overlap(one: &[Range<u64>], other: &[Range<u64>]) -> bool {
    one.iter().any(|a| other.iter().any(|b| a.start < b.end && b.start < a.end))
}

impl World {
    pub fn pin(&mut self, address: u64) {
        let block = &self.reference.live[&address];
        self.heap.pin_mapping(address).unwrap();
        let (bytes, physical) = (block.bytes, block.physical.clone());
        let fresh = Pinned { bytes, times: 0, pool: block.pool, physical };
        let pinned = self.pins.entry(address).or_insert_with(|| fresh.clone());
        if pinned.bytes < fresh.bytes {
            (pinned.bytes, pinned.physical) = (fresh.bytes, fresh.physical);
        }
        pinned.times += 1;
    }

    /// Takes the nth pin back, if there are any; what is pinned no longer is refused.
    pub fn unpin(&mut self, nth: usize) {
        let addresses: Vec<u64> = self.pins.keys().copied().collect();
        let Some(&address) = addresses.get(nth % addresses.len().max(1)) else { return };
        assert!(self.heap.unpin(PinKey::Block(address)));
        let pinned = self.pins.get_mut(&address).unwrap();
        pinned.times -= 1;
        if pinned.times == 0 {
            self.pins.remove(&address);
            assert!(!self.heap.unpin(PinKey::Block(address)));
        }
    }

    pub fn unpin_all(&mut self) {
        while !self.pins.is_empty() {
            self.unpin(0);
        }
    }

    pub fn verify_pins(&self) {
        for (&address, pinned) in &self.pins {
            let physical = self.device.physical(address, pinned.bytes);
            assert_eq!(physical.as_ref(), Some(&pinned.physical), "pinned {address:#x} moved");
            for (&at, block) in self.reference.live.iter().filter(|_| pinned.pool == 0) {
                let is_elsewhere = at + block.bytes <= address || address + pinned.bytes <= at;
                let is_remapped = is_elsewhere && overlap(&block.physical, &pinned.physical);
                assert!(!is_remapped, "pinned {address:#x} is remapped to {at:#x}");
            }
        }
    }
}
