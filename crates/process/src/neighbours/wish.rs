//! [`Wish`]: what one process wants of another, in one word, so that no reader sees half of one.

/// What a wish counts in, so that its size fits into 32 bits: 64 KiB.
const UNIT_LOG2: u32 = 16;

/// Where a wish stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// Nobody has looked at it.
    Posted = 1,
    /// Whom it is made to is about to give.
    Taken = 2,
    /// Over: its size is what was given.
    Answered = 3,
}

/// A wish as it stands in the slot of whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) stage: Stage,
    /// The slot of whom it is made to.
    pub(super) to: u8,
    /// Tells it from those before it.
    pub(super) number: u16,
    /// In units.
    units: u32,
}

impl Wish {
    /// One for so many bytes; for none it asks for figures alone.
    pub(super) fn new(to: u8, number: u16, bytes: u64) -> Self {
        Self { stage: Stage::Posted, to, number, units: units(bytes) }
    }

    /// The same at another stage, of another size, rounded down.
    pub(super) fn at(self, stage: Stage, bytes: u64) -> Self {
        Self { stage, units: units(bytes & !((1 << UNIT_LOG2) - 1)), ..self }
    }

    /// Its size.
    pub(super) const fn bytes(self) -> u64 {
        (self.units as u64) << UNIT_LOG2
    }

    pub(super) const fn word(self) -> u64 {
        let [to, stage] = [self.to as u64, self.stage as u64];
        (self.units as u64) << 32 | (self.number as u64) << 16 | to << 8 | stage
    }

    /// The wish that a word is, if it is one.
    pub(super) const fn of(word: u64) -> Option<Self> {
        let stage = match word as u8 {
            1 => Stage::Posted,
            2 => Stage::Taken,
            3 => Stage::Answered,
            _ => return None,
        };
        let (to, number) = ((word >> 8) as u8, (word >> 16) as u16);
        Some(Self { stage, to, number, units: (word >> 32) as u32 })
    }
}

/// Bytes in units, rounded up.
fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << UNIT_LOG2)).unwrap_or(u32::MAX)
}
