//! [`Handle`]: what an opaque pointer of the API says: its kind, its device, which of the devices
//! that had this ordinal one after another, and the value the device gave.
//!
//! Invariant: values of different kinds, devices and generations differ, and none is an address
//! that a processor takes: following one is a fault at once. Values of one kind are recycled as
//! the simulated device recycles them.

use crate::abi::Raw;

/// What a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Context = 0x41,
    Stream,
    Event,
    Memory,
    Pool,
    Graph,
    GraphExec,
    Node,
    Module,
    Library,
    Function,
    Link,
    UserObject,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) kind: Kind,
    pub(crate) ordinal: usize,
    pub(crate) generation: u16,
    pub(crate) value: u64,
}

const GENERATIONS: u16 = 1 << 12;

impl Handle {
    pub(crate) const fn encode(self) -> Raw {
        let generation = (self.generation % GENERATIONS) as u64;
        Raw((self.kind as u64) << 56 | generation << 44 | (self.ordinal as u64) << 36 | self.value)
    }

    pub(crate) fn decode(raw: Raw, kind: Kind) -> Option<Self> {
        (raw.0 >> 56 == kind as u64).then_some(Self {
            kind,
            ordinal: (raw.0 >> 36 & 0xff) as usize,
            generation: (raw.0 >> 44) as u16 % GENERATIONS,
            value: raw.0 & 0xf_ffff_ffff,
        })
    }

    /// Whether it is of the device that now has the ordinal.
    pub(crate) const fn is_of(self, generation: u16) -> bool {
        self.generation == generation % GENERATIONS
    }
}

#[cfg(test)]
mod tests {
    use super::{Handle, Kind};
    use crate::abi::Raw;

    #[test]
    fn a_handle_survives_its_encoding_and_is_of_one_kind() {
        let handle =
            Handle { kind: Kind::Event, ordinal: 63, generation: 4095, value: 0xe123_4560 };
        let raw = handle.encode();
        assert_eq!(Handle::decode(raw, Kind::Event), Some(handle));
        assert_eq!(Handle::decode(raw, Kind::Stream), None);
        for nobody in [0, 1, 2, 16, u64::MAX, 0x7f00_0000_0000] {
            assert_eq!(Handle::decode(Raw(nobody), Kind::Stream), None, "{nobody:#x}");
        }
        assert!(handle.is_of(4095) && handle.is_of(8191) && !handle.is_of(0));
    }
}
