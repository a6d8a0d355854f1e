//! Pins: freed memory that stays where it is. `on_remap`: who keeps tables by address is told of
//! every change of a mapping.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};

use drystone::driver::ErrorCode;
use drystone::{AllocateError, Allocator, FreeError, MappingChange, PinError, PoolId};

use crate::program::{Block, Lane, Program};
use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    i16_pinned_memory_stays_where_it_is_once_freed,
    i16_pinned_remapped_memory_stays_in_its_window,
    i16_part_of_a_block_is_pinned_in_whole_handles,
    i16_ranges_of_one_start_are_pinned_each_by_itself,
    pins_add_up_and_name_live_blocks,
    mapping_changes_are_told_before_memory_is_handed_out,
    b15_a_callback_on_changes_may_free_and_ask_but_not_grow,
);

fn i16_pinned_memory_stays_where_it_is_once_freed(setup: &Setup) {
    let program = setup.program();
    let lane = program.default_lane();
    let bytes = 4 * setup.unit_bytes();
    let block = program.allocate(lane, bytes);
    let address = block.address;
    if !setup.is_caching() {
        assert_eq!(program.allocator.pin_mapping(address), Err(PinError::DriversOwn));
        program.free(block);
        return program.end();
    }
    // So that the block cannot grow where it is.
    let behind = setup.is_vmm().then(|| program.allocate(lane, bytes));
    program.allocator.pin_mapping(address).unwrap();
    program.free(block);
    let pinned = program.reserved();
    assert_eq!(program.allocator.trim(), Ok(0), "given back");
    let larger = program.allocate(lane, 2 * bytes);
    if setup.is_vmm() {
        assert_eq!(program.reserved(), pinned + 2 * bytes, "remapped");
    }
    program.free(larger);
    program.check();
    // At its own address it serves as before.
    let again = program.allocate(lane, bytes);
    assert_eq!(again.address, address);
    program.free(again);
    behind.into_iter().for_each(|block| program.free(block));
    program.allocator.unpin_mapping(address).unwrap();
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    program.end();
}

/// A block of so many remapped granules, none beside another at home, and what keeps them apart.
fn remap(program: &Program, setup: &Setup, lane: Lane, granules: u64) -> (Block, Vec<Block>) {
    let bytes = setup.granule_bytes;
    let mut apart: Vec<Block> = Vec::new();
    let mut freed = Vec::new();
    for at in 0..2 * granules {
        let block = program.allocate(lane, bytes);
        if at % 2 == 0 { freed.push(block) } else { apart.push(block) }
    }
    freed.into_iter().for_each(|block| program.free(block));
    (program.allocate(lane, granules * bytes), apart)
}

fn i16_pinned_remapped_memory_stays_in_its_window(setup: &Setup) {
    if !setup.is_vmm() || !setup.remaps {
        return;
    }
    let program = setup.program();
    let lane = program.default_lane();
    let (block, apart) = remap(&program, setup, lane, 4);
    let held = program.reserved();
    let remaps = program.allocator.remap_stats();
    assert_eq!((remaps.remapped_granules, remaps.aliases), (4, 4));
    assert_eq!(remaps.alias_bytes(), 4 * setup.granule_bytes);
    let address = block.address;
    program.allocator.pin_mapping(address).unwrap();
    assert_eq!(program.allocator.remap_stats().pinned_bytes, block.bytes);
    program.free(block);
    program.check();
    assert_eq!(program.allocator.remap_stats().remapped_granules, 4, "went home");
    // Other sizes take none of it, nor does a trim, and a request of its size is served there.
    let other = program.allocate(lane, 5 * setup.granule_bytes);
    assert_eq!(program.reserved(), held + 5 * setup.granule_bytes);
    program.free(other);
    program.allocator.trim().unwrap();
    let again = program.allocate(lane, 4 * setup.granule_bytes);
    assert_eq!(again.address, address);
    program.free(again);
    program.allocator.unpin_mapping(address).unwrap();
    assert_eq!(program.allocator.remap_stats().remapped_granules, 0, "stays away");
    apart.into_iter().for_each(|block| program.free(block));
    program.allocator.trim().unwrap();
    assert_eq!((program.reserved(), program.allocator.remap_stats().remapped_granules), (0, 0));
    program.end();
}

fn i16_part_of_a_block_is_pinned_in_whole_handles(setup: &Setup) {
    if !setup.is_caching() {
        return;
    }
    let program = setup.program();
    let lane = program.default_lane();
    let block = program.allocate(lane, 8 * setup.unit_bytes());
    let (allocator, address) = (&program.allocator, block.address);
    let part = address + setup.unit_bytes() + 512..address + 3 * setup.unit_bytes();
    let refused = PinError::Block(FreeError::Unknown { address: part.start });
    assert_eq!(allocator.pin_range(part.start..part.start), Err(refused));
    let first = PinError::Block(FreeError::Unknown { address });
    assert_eq!(allocator.pin_range(address..address), Err(first));
    assert_eq!(allocator.pin_range(part.start..u64::MAX), Err(refused));
    allocator.pin_range(part.clone()).unwrap();
    program.free(block);
    program.check();
    allocator.trim().unwrap();
    let pinned = allocator.remap_stats().pinned_bytes;
    assert!(program.reserved() >= pinned && pinned >= part.end - part.start);
    let start = part.start;
    assert_eq!(allocator.unpin_mapping(start), Err(PinError::NotPinned { address: start }));
    allocator.unpin_range(part).unwrap();
    allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    program.end();
}

/// The long one is over first, as the short one would be.
fn i16_ranges_of_one_start_are_pinned_each_by_itself(setup: &Setup) {
    if !setup.is_caching() {
        return;
    }
    let program = setup.program();
    let lane = program.default_lane();
    let block = program.allocate(lane, 8 * setup.unit_bytes());
    let (allocator, start) = (&program.allocator, block.address);
    let (long, short) = (start..start + block.bytes, start..start + 512);
    allocator.pin_range(long.clone()).unwrap();
    allocator.pin_range(short.clone()).unwrap();
    let pinned_bytes = || allocator.remap_stats().pinned_bytes;
    let of_both = pinned_bytes();
    allocator.unpin_range(long.clone()).unwrap();
    assert!(pinned_bytes() < of_both, "the short one holds {of_both} bytes");
    assert_eq!(allocator.unpin_range(long), Err(PinError::NotPinned { address: start }));
    allocator.unpin_range(short).unwrap();
    assert_eq!(pinned_bytes(), 0);
    program.free(block);
    program.end();
}

fn pins_add_up_and_name_live_blocks(setup: &Setup) {
    let program = setup.program();
    let lane = program.default_lane();
    let block = program.allocate(lane, 3 * MIB);
    let (allocator, address) = (&program.allocator, block.address);
    assert_eq!(allocator.unpin_mapping(address), Err(PinError::NotPinned { address }));
    if setup.is_caching() {
        let inside = allocator.pin_mapping(address + 512);
        assert!(matches!(inside, Err(PinError::Block(FreeError::Interior { .. }))), "{inside:?}");
        allocator.pin_mapping(address).unwrap();
        allocator.pin_mapping(address).unwrap();
        program.free(block);
        assert_eq!(allocator.pin_mapping(address), Err(FreeError::AlreadyFree { address }.into()));
        allocator.unpin_mapping(address).unwrap();
        assert_eq!(allocator.trim(), Ok(0), "pinned once more than unpinned");
        allocator.unpin_mapping(address).unwrap();
        assert!(
            allocator
                .unpin_mapping(address)
                .unwrap_err()
                .to_string()
                .contains("no block is pinned")
        );
    } else {
        program.free(block);
    }
    program.end();
}

/// What is backed, as `on_remap` tells, granule by granule of 2 MiB or quantum by quantum.
#[derive(Default)]
struct BackedUnits {
    unit: u64,
    backed: BTreeSet<u64>,
    changes: usize,
}

impl BackedUnits {
    fn note(&mut self, change: &MappingChange) {
        assert!(change.bytes > 0 && change.bytes.is_multiple_of(self.unit), "{change:?}");
        self.changes += 1;
        for at in (change.address..change.address + change.bytes).step_by(self.unit as usize) {
            let is_new =
                if change.is_backed { self.backed.insert(at) } else { self.backed.remove(&at) };
            assert!(is_new, "twice: {change:?}");
        }
    }

    fn covers(&self, block: &Block) -> bool {
        let (first, last) = (block.address, block.address + block.bytes - 1);
        let mut units = (first - first % self.unit..=last).step_by(self.unit as usize);
        units.all(|at| self.backed.contains(&at))
    }
}

fn backed_units(program: &Program, setup: &Setup) -> Arc<Mutex<BackedUnits>> {
    let unit = if setup.is_vmm() { setup.granule_bytes } else { 512 };
    let told = Arc::new(Mutex::new(BackedUnits { unit, ..BackedUnits::default() }));
    let noting = Arc::clone(&told);
    let note = move |change: &MappingChange| noting.lock().unwrap().note(change);
    let listens = program.allocator.on_remap(Arc::new(note));
    assert_eq!(listens.is_ok(), setup.is_caching());
    told
}

fn mapping_changes_are_told_before_memory_is_handed_out(setup: &Setup) {
    let program = setup.program();
    let told = backed_units(&program, setup);
    if !setup.is_caching() {
        return program.end();
    }
    let (lane, other) = (program.default_lane(), program.lane());
    let mut of_last_round = 0;
    for _ in 0..3 {
        let before = told.lock().unwrap().changes;
        let (block, mut live) = remap(&program, setup, lane, 3);
        live.push(block);
        live.push(program.allocate(lane, 700));
        live.push(program.allocate(other, 5 * MIB));
        let seen = told.lock().unwrap();
        assert!(live.iter().all(|block| seen.covers(block)), "handed out untold");
        let held = program.reserved() + program.allocator.remap_stats().alias_bytes();
        assert_eq!(seen.backed.len() as u64 * seen.unit, held);
        of_last_round = seen.changes - before;
        drop(seen);
        live.into_iter().for_each(|block| program.free(block));
    }
    assert_eq!(of_last_round, 0, "the same again changes nothing");
    program.allocator.trim().unwrap();
    assert_eq!(told.lock().unwrap().backed.len(), 0);
    program.end();
}

fn b15_a_callback_on_changes_may_free_and_ask_but_not_grow(setup: &Setup) {
    if !setup.is_caching() {
        return;
    }
    let program = setup.program();
    let lane = program.default_lane();
    let kept = program.allocate(lane, 700);
    let to_free = Arc::new(Mutex::new(Some(program.allocate(lane, 700).address)));
    program.device.taken_back(to_free.lock().unwrap().unwrap());
    // A handle that the callback keeps would keep the allocator: given for the call alone.
    let handle: Arc<OnceLock<Mutex<Option<Allocator>>>> = Arc::default();
    handle.get_or_init(|| Mutex::new(Some(program.allocator.clone())));
    let refusals = Arc::new(Mutex::new(Vec::new()));
    let (inner, seen, freed) = (Arc::clone(&handle), Arc::clone(&refusals), Arc::clone(&to_free));
    let unit_bytes = setup.unit_bytes();
    let callback = move |_: &MappingChange| {
        let allocator = inner.get().unwrap().lock().unwrap();
        let Some(allocator) = allocator.as_ref() else { return };
        if let Some(address) = freed.lock().unwrap().take() {
            allocator.free(address).unwrap();
        }
        assert!(allocator.stats().all.allocations.current >= 1);
        let grown = allocator.allocate(lane.id, 64 * unit_bytes).map(|_| ());
        let Err(AllocateError::Driver { error, .. }) = grown else { panic!("{grown:?}") };
        let trimmed = allocator.trim().unwrap_err().error;
        let passed = allocator.trim_passed().unwrap_err().error;
        let announced = allocator.expect_capture(PoolId::DEFAULT).unwrap_err();
        let stays = allocator.while_memory_stays(|| ()).unwrap_err();
        let codes = [error.code, trimmed.code, passed.code, announced.code, stays.code];
        seen.lock().unwrap().extend(codes);
    };
    program.allocator.on_remap(Arc::new(callback)).unwrap();
    let large = program.allocate(lane, 3 * setup.unit_bytes());
    assert_eq!(*refusals.lock().unwrap(), [ErrorCode::InCallback; 5]);
    assert!(to_free.lock().unwrap().is_none());
    *handle.get().unwrap().lock().unwrap() = None;
    // Outside all goes on.
    let larger = program.allocate(lane, 64 * setup.unit_bytes());
    [kept, large, larger].into_iter().for_each(|block| program.free(block));
    program.allocator.trim().unwrap();
    program.end();
}
