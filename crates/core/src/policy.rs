//! Policy: pure functions that decide sizes. Which block serves a request is the free list's
//! matter; what to ask of the driver is decided here.

use crate::size::round_up;

const MIB: u64 = 1 << 20;

/// The largest small block. As in PyTorch, so that statistics of the two classes compare.
pub(crate) const SMALL_MAX_BYTES: u64 = MIB;

/// How segments are obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum SegmentKind {
    /// A reserved range of addresses, backed handle by handle as it is needed.
    Mapped,
    /// One allocation of the driver.
    Plain,
}

/// Small blocks and large ones share a segment only where there is no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum SizeClass {
    /// Blocks up to 1 MiB.
    Small,
    /// Larger blocks.
    Large,
}

impl SizeClass {
    /// Both classes, small first: `SizeClass::ALL[class as usize] == class`.
    pub const ALL: [SizeClass; 2] = [SizeClass::Small, SizeClass::Large];

    /// Which it is not.
    pub(crate) const fn other(self) -> Self {
        match self {
            SizeClass::Small => SizeClass::Large,
            SizeClass::Large => SizeClass::Small,
        }
    }
}

/// When a free block serves another stream than the one it is free on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CrossStream {
    /// Never. Whole handles whose last use is complete are remapped all the same.
    Never,
    /// Once a fence beyond its last use has passed. Fences are recorded when a request could use
    /// them, so the next request finds what this one did not.
    Passed,
    /// Once a fence has passed, else at once: the other stream is made to wait for it on the
    /// device. The host never waits.
    #[default]
    Wait,
}

/// What memory is worth, in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Prefer {
    /// As little as possible is held, whatever driver calls and waits that takes.
    Memory,
    /// With room to spare memory is created rather than remapped or waited for; near the limit, or
    /// the end of the device, as little is held as possible.
    #[default]
    Balanced,
    /// Memory is created for as long as there is any.
    Speed,
}

/// Whether there is room to spare for a growth by so many bytes: of `own_bytes`, what this heap may
/// hold at most, so many are left.
pub(crate) const fn is_roomy(prefer: Prefer, bytes: u64, left_bytes: u64, own_bytes: u64) -> bool {
    let spare_bytes = match prefer {
        Prefer::Memory => return false,
        Prefer::Balanced => own_bytes / SPARE_SHARE,
        Prefer::Speed => 0,
    };
    left_bytes.saturating_sub(spare_bytes) >= bytes
}

/// The last so-manieth part of what a heap may hold is not room to spare, and a handle takes no
/// more than that part of what is left: the last ones are single granules.
pub const SPARE_SHARE: u64 = 16;

/// Whether a remap with so many mappings is worth its driver time with room to spare: it takes no
/// more than the growth that it saves, in so many handles of so many granules together.
pub(crate) const fn is_worth_mapping(mappings: u64, handles: u64, granules: u64) -> bool {
    mappings * MAPPING_PRICE <= growth_price(handles, granules)
}

/// The price of creating so many granules in so many handles, in units of which a mapping takes
/// [`MAPPING_PRICE`].
///
/// By published prices a handle of `n` granules takes `13 + n` sixteenths of what a mapping takes
/// that is made and undone: of the tables in `crates/lab/sim/src/cost.rs`, the one in which that is
/// least.
pub(crate) const fn growth_price(handles: u64, granules: u64) -> u64 {
    13 * handles + granules
}

/// The price of a mapping that is made and undone.
const MAPPING_PRICE: u64 = 16;

/// What it costs to give live memory other handles, in the unit of [`growth_price`]: they are
/// created, mapped twice and opened twice, and the old one is unmapped; in a window, the same once
/// more at home.
pub(crate) const fn move_price(handles: u64, granules: u64, is_away: bool) -> u64 {
    let places = 1 + is_away as u64;
    growth_price(handles, granules)
        + (1 + places) * handles * MAPPING_PRICE
        + places * MAPPING_PRICE
}

/// How many pages that are used in part are compared, each with each, for two that fit on one
/// granule: those of which the least is to be copied. It takes some milliseconds.
pub(crate) const PAGES_TO_MESH: usize = 1024;

/// How many handles a move may map behind addresses in use, and how many parts a mesh may copy. By
/// the dearest prices of `crates/lab/sim/src/cost.rs` streams stand still for 40 us for each, and
/// for 2 ms at most.
pub(crate) const TARGETS_OF_A_MOVE: usize = 48;

/// How many bytes become one handle at most where a library takes them for one: they are copied in
/// one hold, and all stay while any of them are in use. At 1 TB/s, read and written, 2 ms.
pub(crate) const WHOLE_MAX_BYTES: u64 = 1 << 30;

/// How often it is looked whether fences have passed, before a request of so many bytes makes
/// memory grow: by the prices of `crates/lab/sim/src/cost.rs` that takes a sixteenth of the
/// growth's driver time at most.
pub(crate) fn looks(bytes: u64, granule_bytes: u64) -> u64 {
    const MOST: u64 = 64;
    (bytes / granule_bytes / 4).min(MOST)
}

/// The class of a block.
#[inline]
pub(crate) const fn size_class(bytes: u64) -> SizeClass {
    if bytes <= SMALL_MAX_BYTES { SizeClass::Small } else { SizeClass::Large }
}

/// How much a block that serves a request may have too much and still serves whole; a larger rest
/// is split off as a block of its own.
///
/// In plain segments a small rest of a large block could serve only small requests, which have
/// segments of their own.
pub(crate) const fn kept_rest_bytes(kind: SegmentKind, class: SizeClass, is_split: bool) -> u64 {
    match (kind, class) {
        _ if !is_split => u64::MAX,
        (SegmentKind::Plain, SizeClass::Large) => SMALL_MAX_BYTES,
        _ => 0,
    }
}

/// Large plain segments are whole multiples of this, which is what a driver allocation takes at the
/// least.
const PLAIN_UNIT_BYTES: u64 = 2 * MIB;

/// The least that is taken from the device or given back, in bytes.
pub(crate) const fn unit_bytes(kind: SegmentKind, granule_bytes: u64) -> u64 {
    match kind {
        SegmentKind::Mapped => granule_bytes,
        SegmentKind::Plain => PLAIN_UNIT_BYTES,
    }
}

/// What large blocks share of plain memory. As in PyTorch.
const SHARED_SEGMENT_BYTES: u64 = 20 * MIB;

/// Bytes of a plain segment for a block that fits nowhere; `None` beyond the range of sizes.
///
/// Small blocks share 2 MiB, which is what a driver allocation takes at the least. A large block
/// under 10 MiB shares 20 MiB; a larger one has its own, in whole 2 MiB. Figures as in PyTorch.
/// Where segments are not split nothing is shared.
///
/// What a private pool holds serves nobody else. There blocks share a quarter of what it holds for
/// large ones at most, so that beyond a block it takes less than that quarter and 2 MiB.
pub(crate) fn plain_segment_bytes(
    class: SizeClass,
    bytes: u64,
    is_split: bool,
    private_bytes: Option<u64>,
) -> Option<u64> {
    let shared_bytes = match class {
        SizeClass::Small => return Some(PLAIN_UNIT_BYTES),
        SizeClass::Large if bytes < 10 * MIB && is_split => {
            private_bytes.map_or(SHARED_SEGMENT_BYTES, |held| SHARED_SEGMENT_BYTES.min(held / 4))
        }
        SizeClass::Large => 0,
    };
    round_up(bytes.max(shared_bytes), PLAIN_UNIT_BYTES)
}

/// The most bytes of a handle where little is to be held: by published costs
/// (`crates/lab/sim/src/cost.rs`) creating 8 MiB at once takes 46 % of the time that four handles
/// take, 16 MiB no less than 37 % of that of eight.
pub(crate) const HANDLE_MAX_BYTES: u64 = 8 * MIB;

/// The most bytes of a handle where memory is not preferred: by published costs creating more at
/// once saves less than a hundredth, and what is live in a larger one finds no room to move to.
const LARGE_HANDLE_MAX_BYTES: u64 = 128 * MIB;

/// With room to spare no request is too small for handles of so many bytes, which the next ones
/// share: the power of two after the 20 MiB that PyTorch's expandable segments create at once.
const SHARED_HANDLE_BYTES: u64 = 32 * MIB;

/// The same for programs that hold little, of which the other would be much: the power of two
/// before those 20 MiB.
const SHARED_HANDLE_LEAST_BYTES: u64 = 16 * MIB;

/// Which of the two it is for a heap that holds so much: about an eighth.
const fn shared_handle_bytes(held_bytes: u64) -> u64 {
    let is_much = held_bytes / 8 >= SHARED_HANDLE_BYTES;
    if is_much { SHARED_HANDLE_BYTES } else { SHARED_HANDLE_LEAST_BYTES }
}

/// In what unit the memory of a heap that holds so much grows, with handles of so many bytes: no
/// more than a handle that small requests share is created beyond a request.
pub(crate) fn growth_unit(handle_bytes: u64, held_bytes: u64) -> u64 {
    1 << handle_bytes.min(shared_handle_bytes(held_bytes)).ilog2()
}

/// How far beyond a block of so many bytes that grows in place memory may lie that was free: the
/// rest of a handle, for its next growth alone.
pub(crate) fn growth_beyond_bytes(live_bytes: u64) -> u64 {
    (live_bytes / 8).max(SHARED_HANDLE_BYTES)
}

/// By how much the last handle of a remap may be larger than needed. The rest goes along: others
/// hold more for it, or have to be created otherwise.
pub(crate) const LAST_HANDLE_BEYOND_BYTES: u64 = SHARED_HANDLE_BYTES;

/// What is kept near the end so that memory can move, beside what is free in whole handles: what
/// the live part of one takes. Where live memory leaves nothing to be moved, it serves requests.
pub(crate) const ROOM_FOR_MOVES_BYTES: u64 = SHARED_HANDLE_BYTES;

/// How many times a handle fits into what is left with room to spare, where live memory does not
/// move: what is created early in large handles is then what the last per cent lacks.
/// `docs/evidence/measurements.md` has the table of shares.
pub(crate) const LEFT_PER_STAYING_HANDLE: u64 = 128;

/// How many granules new handles for a request get in a heap that holds so much: all that it makes
/// the heap grow by, but no more than a share of what is left. Small blocks would hold large
/// handles up, and so would all blocks where memory is preferred and nothing moves.
pub(crate) fn handle_granules(
    class: SizeClass,
    prefer: Prefer,
    moves: bool,
    asked_bytes: u64,
    held_bytes: u64,
    share_bytes: u64,
    granule_bytes: u64,
) -> u16 {
    if class == SizeClass::Small || (prefer == Prefer::Memory && !moves) {
        return 1;
    }
    let most_bytes = match prefer {
        Prefer::Memory => HANDLE_MAX_BYTES,
        Prefer::Balanced | Prefer::Speed => {
            let shared_bytes = shared_handle_bytes(held_bytes);
            asked_bytes.saturating_add(shared_bytes - 1) / shared_bytes * shared_bytes
        }
    };
    let most_bytes = most_bytes.min(LARGE_HANDLE_MAX_BYTES);
    let granules = (most_bytes.min(share_bytes) / granule_bytes).clamp(1, u64::from(u16::MAX));
    granules as u16
}

/// How many granules new handles of a private pool get, for a request of so many: of `most` no more
/// than a quarter of them, or [`HANDLE_MAX_BYTES`].
///
/// Memory does not move there, and a smaller block in a handle holds all of it up. The stages of a
/// network halve or quarter what they hold, and so does what replaces a block.
pub(crate) fn private_handle_granules(most: u16, granules: u64, granule_bytes: u64) -> u16 {
    let least = HANDLE_MAX_BYTES / granule_bytes;
    let granules = granules.div_ceil(4).max(least).clamp(1, u64::from(most));
    granules as u16
}

/// How many idle windows a remap of so many granules looks at: 256 granules of them, or 16 windows.
/// Looking at more takes longer than the driver calls that it could save.
pub(crate) fn windows_to_look_at(granules: usize) -> usize {
    const GRANULES: usize = 256;
    const WINDOWS: usize = 16;
    (GRANULES / granules).max(WINDOWS)
}

/// How many mappings may exist for so many granules.
///
/// The driver fails at about 516,000 mappings in a context (published for an H100, driver 580.82),
/// which other programs' mappings count against, too. Four for each granule keep every place that
/// a repeating program comes back to; what is beyond was mostly used once.
pub(crate) fn mapping_budget(granules: usize) -> usize {
    const LEAST: usize = 4096;
    const MOST: usize = 400_000;
    (4 * granules).clamp(LEAST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_small_block_is_a_mebibyte() {
        assert_eq!(size_class(MIB), SizeClass::Small);
        assert_eq!(size_class(MIB + 512), SizeClass::Large);
    }

    #[test]
    fn only_plain_segments_keep_small_rests_of_large_blocks() {
        for (kind, class) in [
            (SegmentKind::Mapped, SizeClass::Small),
            (SegmentKind::Mapped, SizeClass::Large),
            (SegmentKind::Plain, SizeClass::Small),
        ] {
            assert_eq!(kept_rest_bytes(kind, class, true), 0);
        }
        assert_eq!(kept_rest_bytes(SegmentKind::Plain, SizeClass::Large, true), MIB);
        assert_eq!(kept_rest_bytes(SegmentKind::Plain, SizeClass::Small, false), u64::MAX);
    }

    #[test]
    fn b34_plain_segments_hold_what_they_are_for() {
        let large = |bytes| plain_segment_bytes(SizeClass::Large, bytes, true, None);
        assert_eq!(plain_segment_bytes(SizeClass::Small, MIB, true, None), Some(2 * MIB));
        assert_eq!(large(MIB + 512), Some(20 * MIB));
        assert_eq!(large(10 * MIB - 512), Some(20 * MIB));
        assert_eq!(large(10 * MIB), Some(10 * MIB));
        assert_eq!(large(10 * MIB + 512), Some(12 * MIB));
        assert_eq!(large(u64::MAX), None);
        let unsplit = |bytes| plain_segment_bytes(SizeClass::Large, bytes, false, None);
        assert_eq!((unsplit(MIB + 512), unsplit(3 * MIB)), (Some(2 * MIB), Some(4 * MIB)));
    }

    #[test]
    fn a_private_pool_takes_handles_of_a_quarter_of_what_is_asked_for() {
        let handle = |most, granules| private_handle_granules(most, granules, 2 * MIB);
        assert_eq!([54, 14, 8, 1].map(|granules| handle(64, granules)), [14, 4, 4, 4]);
        assert_eq!((handle(8, 54), handle(1, 54)), (8, 1), "no more than others get");
        assert_eq!(private_handle_granules(64, 5, 16 * MIB), 2);
        assert_eq!(private_handle_granules(64, 1, 16 * MIB), 1);
    }

    #[test]
    fn a_private_pool_takes_plain_memory_by_what_it_holds() {
        let held = |bytes, held| plain_segment_bytes(SizeClass::Large, bytes, true, Some(held));
        assert_eq!(held(3 * MIB, 0), Some(4 * MIB), "the request alone");
        assert_eq!(held(3 * MIB, 32 * MIB), Some(8 * MIB));
        assert_eq!(held(3 * MIB, 33 * MIB), Some(10 * MIB));
        assert_eq!(held(9 * MIB, 32 * MIB), Some(10 * MIB), "no less than the request");
        assert_eq!(held(3 * MIB, 1 << 40), Some(20 * MIB));
        assert_eq!(held(10 * MIB, 1 << 40), Some(10 * MIB));
    }

    #[test]
    fn room_to_spare_ends_before_the_memory_does() {
        let roomy = |prefer, bytes, left_bytes| is_roomy(prefer, bytes, left_bytes, 160 * MIB);
        assert!(roomy(Prefer::Balanced, 10 * MIB, 20 * MIB));
        assert!(!roomy(Prefer::Balanced, 10 * MIB + 1, 20 * MIB));
        assert!(roomy(Prefer::Speed, 20 * MIB, 20 * MIB));
        assert!(!roomy(Prefer::Speed, 20 * MIB + 1, 20 * MIB));
        assert!(!roomy(Prefer::Memory, 1, 160 * MIB));
        assert!(!roomy(Prefer::Balanced, u64::MAX, u64::MAX));
    }

    #[test]
    fn a_remap_takes_no_more_than_the_growth_that_it_saves() {
        // Growth by 64 granules in one handle: 77 sixteenths of a mapping.
        assert!(is_worth_mapping(4, 1, 64));
        assert!(!is_worth_mapping(5, 1, 64));
        assert!(!is_worth_mapping(1, 0, 0), "it saves nothing");
    }

    #[test]
    fn handles_follow_what_is_asked_and_their_share() {
        const GIB: u64 = 1 << 30;
        let of = |class, prefer, moves, asked, held, share, granule| {
            u64::from(handle_granules(class, prefer, moves, asked, held, share, granule)) * granule
        };
        let handle = |asked, held, share| {
            of(SizeClass::Large, Prefer::Balanced, true, asked, held, share, 2 * MIB)
        };
        assert_eq!(handle(3 * MIB, 0, GIB), 16 * MIB);
        assert_eq!(handle(3 * MIB, 256 * MIB, GIB), 32 * MIB);
        assert_eq!(handle(100 * MIB, 0, GIB), 112 * MIB);
        assert_eq!(handle(u64::MAX, 0, GIB), 128 * MIB);
        assert_eq!(handle(64 * GIB, 0, GIB), 128 * MIB);
        for (share, bytes) in [(0, 2), (3, 2), (4, 4), (7, 6), (8, 8), (63, 62), (64, 64)] {
            assert_eq!(handle(GIB, 0, share * MIB), bytes * MIB, "{share}");
        }
        let large = |prefer, moves, granule| {
            of(SizeClass::Large, prefer, moves, 64 * GIB, 0, GIB, granule) / MIB
        };
        assert_eq!(large(Prefer::Memory, true, 2 * MIB), 8);
        assert_eq!(large(Prefer::Memory, true, 64 * MIB), 64);
        assert_eq!(large(Prefer::Memory, false, 2 * MIB), 2);
        assert_eq!(large(Prefer::Balanced, false, 2 * MIB), 128);
        assert_eq!(of(SizeClass::Small, Prefer::Speed, true, GIB, 0, GIB, 2 * MIB), 2 * MIB);
    }

    #[test]
    fn memory_grows_in_units_of_what_is_shared_and_of_what_is_asked() {
        assert_eq!(growth_unit(32 * MIB, 128 * MIB), 16 * MIB);
        assert_eq!(growth_unit(32 * MIB, 256 * MIB), 32 * MIB);
        assert_eq!(growth_unit(128 * MIB, 0), 16 * MIB);
        assert_eq!(growth_unit(2 * MIB, 0), 2 * MIB);
    }
}
