//! [`Oracle`]: who uses which physical bytes, and in what order.
//!
//! It knows memory twice: by physical byte, to find two live blocks on one byte and reuse without
//! order through whatever mapping; and by address, to find memory that is taken away while a kernel
//! may still go through that address. Order is kept by vector clocks, never by the simulated time:
//! that something happens to be over does not make it legal to rely on it.
//! Captured work is judged as if it ran where it was captured; replays of a graph are not modelled.

use crate::contents::Contents;
use crate::happens_before::HappensBefore;
use crate::interval_map::IntervalMap;
use crate::memory::Piece;
use crate::stream::uid;
use crate::violation::{Violation, ViolationLog};
use drystone_driver::{Call, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

const ALIGN_BYTES: u64 = 512;

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    ordinal: u32,
    launches_are_early: bool,
    pub(crate) order: HappensBefore,
    blocks: BTreeMap<Key, Block>,
    by_start: BTreeMap<u64, Key>,
    by_physical: IntervalMap<Owner>,
    by_address: IntervalMap<Owner>,
    contents: Contents,
    next_key: Key,
}

/// Names a block forever: addresses are reused.
type Key = u64;

#[derive(Debug)]
struct Block {
    address: u64,
    bytes: u64,
    uses: Vec<Use>,
    pieces: Vec<Piece>,
    /// How often it was written except the first time.
    writes: u64,
}

/// The last use on one stream: the `tick`-th work of the stream with that index.
#[derive(Clone, Copy, Debug)]
struct Use {
    stream: Stream,
    index: u32,
    tick: u64,
}

/// To whom bytes belong, or who used them last.
#[derive(Clone, Debug)]
enum Owner {
    Live(Key),
    Freed(Freed),
}

/// The last uses of bytes that are nobody's.
#[derive(Clone, Debug)]
struct Freed {
    uses: Arc<[Use]>,
    /// At which address each was used, as a distance from its physical place.
    distance: u64,
}

impl Oracle {
    pub(crate) fn new(ordinal: u32, launches_are_early: bool) -> Self {
        Self { ordinal, launches_are_early, ..Self::default() }
    }

    /// A block was handed out; `pieces` is `None` when it is not wholly in reachable memory.
    pub(crate) fn allocated(
        &mut self,
        log: &mut ViolationLog,
        (address, bytes): (u64, u64),
        (stream, index): (Stream, u32),
        pieces: Option<Vec<Piece>>,
    ) {
        if !address.is_multiple_of(ALIGN_BYTES) {
            log.add(Violation::Misaligned { address });
        }
        if pieces.is_none() {
            log.add(Violation::NotAccessible { address, bytes });
        }
        let pieces = pieces.unwrap_or_default();
        self.check_overlap(log, address, bytes, &pieces);
        self.check_reuse(log, address, bytes, index, &pieces);
        if self.launches_are_early && self.is_early(index, &pieces) {
            let stream = uid(self.ordinal, index);
            log.add(Violation::EarlyGrid { address, bytes, stream });
        }
        let key = self.next_key;
        self.next_key += 1;
        for piece in &pieces {
            let (start, physical) = (piece.address, piece.physical);
            self.by_address.assign(start, start + piece.bytes, Owner::Live(key));
            self.by_physical.assign(physical, physical + piece.bytes, Owner::Live(key));
        }
        let tick = self.order.stream(index).tick(index);
        let uses = vec![Use { stream, index, tick }];
        self.contents.write(key, 0, &pieces);
        self.blocks.insert(key, Block { address, bytes, uses, pieces, writes: 0 });
        self.by_start.insert(address, key);
    }

    /// A kernel uses the block: reads what it wrote last, and writes it anew. `pieces` is what is
    /// behind its addresses, `None` when a kernel would fault.
    pub(crate) fn used(
        &mut self,
        log: &mut ViolationLog,
        address: u64,
        (stream, index): (Stream, u32),
        pieces: Option<Vec<Piece>>,
    ) {
        let tick = self.order.stream(index).tick(index);
        self.settle(log, address, pieces);
        let Some((&key, block)) =
            self.by_start.get(&address).and_then(|key| Some((key, self.blocks.get_mut(key)?)))
        else {
            log.add(Violation::UnknownBlock { address });
            return;
        };
        block.writes += 1;
        self.contents.write(key, block.writes, &block.pieces);
        match block.uses.iter_mut().find(|one| one.index == index) {
            Some(one) => one.tick = tick,
            None => block.uses.push(Use { stream, index, tick }),
        }
    }

    /// A live block has this behind its addresses, which may be other memory than before: its
    /// bytes have to be there.
    pub(crate) fn settle(
        &mut self,
        log: &mut ViolationLog,
        address: u64,
        pieces: Option<Vec<Piece>>,
    ) {
        let Some((&key, block)) =
            self.by_start.get(&address).and_then(|key| Some((key, self.blocks.get_mut(key)?)))
        else {
            return;
        };
        let bytes = block.bytes;
        let Some(pieces) = pieces else {
            log.add(Violation::NotAccessible { address, bytes });
            return;
        };
        if pieces == block.pieces {
            return;
        }
        if !self.contents.hold(key, block.writes, &pieces) && !block.pieces.is_empty() {
            log.add(Violation::LostBytes { address, bytes });
        }
        let uses: Arc<[Use]> = block.uses.clone().into();
        for piece in &block.pieces {
            let freed = Freed { uses: Arc::clone(&uses), distance: distance(piece) };
            self.by_physical.update(piece.physical, piece.physical + piece.bytes, |owner| {
                if matches!(owner, Owner::Live(other) if *other == key) {
                    *owner = Owner::Freed(freed.clone());
                }
            });
        }
        for piece in &pieces {
            let (start, physical) = (piece.address, piece.physical);
            self.by_address.assign(start, start + piece.bytes, Owner::Live(key));
            self.by_physical.assign(physical, physical + piece.bytes, Owner::Live(key));
        }
        block.pieces = pieces;
    }

    /// The live blocks: where they start, and their sizes.
    pub(crate) fn live(&self) -> Vec<(u64, u64)> {
        self.blocks.values().map(|block| (block.address, block.bytes)).collect()
    }

    /// Who has used each live block that has bytes in a range, and which block.
    pub(crate) fn users_within(
        &self,
        address: u64,
        bytes: u64,
    ) -> impl Iterator<Item = (Stream, u32, (u64, u64))> {
        let owners = self.by_address.overlapping(address, address + bytes);
        let blocks = owners.filter_map(|(.., owner)| match owner {
            Owner::Live(key) => self.blocks.get(key),
            Owner::Freed(_) => None,
        });
        blocks.flat_map(|block| {
            block.uses.iter().map(|one| (one.stream, one.index, (block.address, block.bytes)))
        })
    }

    /// Whether a range has bytes of a live block.
    pub(crate) fn is_live_within(&self, address: u64, bytes: u64) -> bool {
        let mut owners = self.by_address.overlapping(address, address + bytes);
        owners.any(|(.., owner)| matches!(owner, Owner::Live(_)))
    }

    /// The size of a live block.
    pub(crate) fn size_of(&self, address: u64) -> Option<u64> {
        Some(self.blocks.get(self.by_start.get(&address)?)?.bytes)
    }

    /// Bytes are copied by nobody's stream: whoever wrote them last must be known to be done.
    pub(crate) fn copied(&mut self, log: &mut ViolationLog, from: &[Piece], to: &[Piece]) {
        let is_live = |piece| self.physical(piece).any(|(.., one)| matches!(one, Owner::Live(_)));
        if to.iter().any(is_live) {
            // A program's own copy from block to block: a use of both, of which it tells.
            return;
        }
        let host = self.order.host();
        for piece in from {
            for (_, _, owner) in self.physical(piece) {
                let uses = match owner {
                    Owner::Live(key) => self.blocks.get(key).map_or(&[][..], |block| &block.uses),
                    Owner::Freed(Freed { uses, .. }) => uses,
                };
                if let Some(running) = uses.iter().find(|one| host.at(one.index) < one.tick) {
                    let earlier = uid(self.ordinal, running.index);
                    let Piece { address, bytes, .. } = *piece;
                    log.add(Violation::CopyInFlight { address, bytes, earlier });
                    break;
                }
            }
        }
        self.contents.copy(from, to);
    }

    /// The streams that have used the block.
    pub(crate) fn streams_of(&self, log: &mut ViolationLog, address: u64) -> Vec<(Stream, u32)> {
        let key = self.by_start.get(&address);
        let Some(block) = key.and_then(|key| self.blocks.get(key)) else {
            log.add(Violation::UnknownBlock { address });
            return Vec::new();
        };
        block.uses.iter().map(|one| (one.stream, one.index)).collect()
    }

    /// The same, if there is a block.
    pub(crate) fn streams_at(&self, address: u64) -> Vec<Stream> {
        let block = self.by_start.get(&address).and_then(|key| self.blocks.get(key));
        block.map_or_else(Vec::new, |block| block.uses.iter().map(|one| one.stream).collect())
    }

    /// The block is the allocator's again; its last uses stay on record.
    pub(crate) fn released(&mut self, address: u64) {
        let Some(key) = self.by_start.remove(&address) else { return };
        let Some(block) = self.blocks.remove(&key) else { return };
        let uses: Arc<[Use]> = block.uses.into();
        for piece in &block.pieces {
            let (start, physical) = (piece.address, piece.physical);
            let freed = Freed { uses: Arc::clone(&uses), distance: distance(piece) };
            // Bytes that another live block has claimed meanwhile are that one's.
            let give_up = |owner: &mut Owner| {
                if matches!(owner, Owner::Live(other) if *other == key) {
                    *owner = Owner::Freed(freed.clone());
                }
            };
            self.by_address.update(start, start + piece.bytes, &give_up);
            self.by_physical.update(physical, physical + piece.bytes, give_up);
        }
    }

    /// Addresses lose their memory at once, whatever runs. Where streams are held, what is live
    /// there may have lost it until they are let go.
    pub(crate) fn unmapped(
        &mut self,
        log: &mut ViolationLog,
        address: u64,
        bytes: u64,
        is_held: bool,
    ) {
        let host = self.order.host();
        for (start, end, owner) in self.by_address.overlapping(address, address + bytes) {
            let uses = match owner {
                Owner::Freed(Freed { uses, .. }) => &uses[..],
                Owner::Live(key) if is_held => {
                    self.blocks.get(key).map_or(&[][..], |block| &block.uses)
                }
                Owner::Live(_) => continue,
            };
            if let Some(running) = uses.iter().find(|one| host.at(one.index) < one.tick) {
                log.add(Violation::UnmapInFlight {
                    address: start,
                    bytes: end - start,
                    earlier: uid(self.ordinal, running.index),
                });
                break;
            }
        }
        if is_held {
            self.by_address.erase(address, address + bytes);
        } else {
            self.freed(log, Call::Unmap, address, bytes);
        }
    }

    /// Stream-ordered memory is freed on the stream with this index.
    pub(crate) fn freed_in_order(
        &mut self,
        log: &mut ViolationLog,
        address: u64,
        bytes: u64,
        index: u32,
    ) {
        let clock = self.order.stream(index);
        for (start, end, owner) in self.by_address.overlapping(address, address + bytes) {
            let Owner::Freed(Freed { uses, .. }) = owner else { continue };
            if let Some(running) = uses.iter().find(|one| clock.at(one.index) < one.tick) {
                log.add(Violation::UnorderedFree {
                    address: start,
                    bytes: end - start,
                    stream: uid(self.ordinal, index),
                    earlier: uid(self.ordinal, running.index),
                });
                break;
            }
        }
        self.freed(log, Call::FreeAsync, address, bytes);
    }

    /// Addresses lose their memory; only a live block makes that wrong.
    pub(crate) fn freed(&mut self, log: &mut ViolationLog, call: Call, address: u64, bytes: u64) {
        let live =
            self.by_address.overlapping(address, address + bytes).find_map(|(_, _, owner)| {
                match owner {
                    Owner::Live(key) => self.blocks.get(key),
                    Owner::Freed(_) => None,
                }
            });
        if let Some(block) = live {
            let block_address = block.address;
            log.add(Violation::LiveMemoryGone { call, address, bytes, block_address });
        }
        self.by_address.erase(address, address + bytes);
    }

    /// Physical bytes that will never be seen again.
    pub(crate) fn physical_gone(&mut self, physical: u64, bytes: u64) {
        self.by_physical.erase(physical, physical + bytes);
        self.contents.gone(physical, bytes);
    }

    /// At most one report for each block that shares with the new one.
    fn check_overlap(&self, log: &mut ViolationLog, address: u64, bytes: u64, pieces: &[Piece]) {
        let mut reported: Vec<Key> = Vec::new();
        for (start, end, owner) in pieces.iter().flat_map(|piece| self.physical(piece)) {
            let Owner::Live(key) = owner else { continue };
            let Some(other) = self.blocks.get(key) else { continue };
            if !reported.contains(key) {
                reported.push(*key);
                log.add(Violation::Overlap {
                    address,
                    bytes,
                    other_address: other.address,
                    other_bytes: other.bytes,
                    shared_bytes: end - start,
                });
            }
        }
    }

    /// At most one report for each stream that may still use what the new block has.
    fn check_reuse(
        &mut self,
        log: &mut ViolationLog,
        address: u64,
        bytes: u64,
        index: u32,
        pieces: &[Piece],
    ) {
        let clock = self.order.stream(index).clone();
        let mut reported: Vec<u32> = Vec::new();
        for (_, _, owner) in pieces.iter().flat_map(|piece| self.physical(piece)) {
            let Owner::Freed(Freed { uses, .. }) = owner else { continue };
            for running in uses.iter().filter(|one| clock.at(one.index) < one.tick) {
                if !reported.contains(&running.index) {
                    reported.push(running.index);
                    log.add(Violation::UnorderedReuse {
                        address,
                        bytes,
                        stream: uid(self.ordinal, index),
                        earlier: uid(self.ordinal, running.index),
                    });
                }
            }
        }
    }

    /// Whether the stream's kernel before this one used some of the memory at another address: two
    /// kernels that may be on the device together.
    fn is_early(&mut self, index: u32, pieces: &[Piece]) -> bool {
        let latest = self.order.stream(index).at(index);
        if self.order.host().at(index) >= latest {
            return false;
        }
        let mut owners =
            pieces.iter().flat_map(|piece| self.physical(piece).map(move |(.., one)| (piece, one)));
        owners.any(|(piece, owner)| match owner {
            Owner::Freed(Freed { uses, distance: before }) => {
                let is_latest = uses.iter().any(|one| one.index == index && one.tick == latest);
                is_latest && *before != distance(piece)
            }
            Owner::Live(_) => false,
        })
    }

    fn physical(&self, piece: &Piece) -> impl Iterator<Item = (u64, u64, &Owner)> {
        self.by_physical.overlapping(piece.physical, piece.physical + piece.bytes)
    }
}

/// How far an address lies from the physical place behind it.
const fn distance(piece: &Piece) -> u64 {
    piece.address.wrapping_sub(piece.physical)
}

#[cfg(test)]
mod tests {
    use crate::{GRANULARITY_BYTES as G, SimConfig, SimDevice};
    use drystone_driver::{Driver, MemoryPoolConfig, Stream};

    #[test]
    fn nothing_is_remembered_of_memory_that_is_gone() {
        let device = SimDevice::new(SimConfig { oracle: true, ..SimConfig::default() });
        let stream = Stream::DEFAULT;
        let plain = device.malloc(G).unwrap();
        let pool = device.create_memory_pool(&MemoryPoolConfig::default()).unwrap();
        let pooled = device.malloc_async(pool, G, stream).unwrap();
        let address = device.reserve(2 * G, 0).unwrap();
        let (early, late) = (device.create(G).unwrap(), device.create(G).unwrap());
        device.map(address, G, early).unwrap();
        device.map(address + G, G, late).unwrap();
        device.set_access(address, 2 * G).unwrap();
        for block in [plain, pooled, address, address + G] {
            device.check_alloc(block, 512, stream);
            device.check_free(block);
        }
        device.free(plain).unwrap();
        device.free_async(pooled, stream).unwrap();
        device.synchronize_device().unwrap();
        device.release(early).unwrap();
        device.unmap(address, 2 * G).unwrap();
        device.release(late).unwrap();
        let state = device.inner.state.lock();
        let oracle = state.oracle.as_ref().unwrap();
        assert!(oracle.by_physical.is_empty() && oracle.by_address.is_empty());
        assert!(oracle.blocks.is_empty() && oracle.by_start.is_empty());
        assert_eq!(state.log.kept(), []);
    }
}
