//! Memory for other processes: the descriptors of a block, and what becomes of them.

use std::sync::{Arc, Weak};

use drystone::driver::{CaptureMode, Descriptor};
use drystone::{Exported, FreeError, Imported, ShareError};

use crate::program::Program;
use crate::setup::{Setup, on_every_setup};

on_every_setup!(
    a_block_is_imported_as_it_was_exported,
    descriptors_are_open_until_the_memory_goes_back,
    an_exported_block_stays_what_it_was_while_others_move,
    what_is_left_of_a_window_is_exported,
    imports_outlive_a_capture,
    what_is_no_block_is_not_exported,
);

fn import(program: &Program, exported: &Exported) -> Result<Imported, ShareError> {
    let handles = exported.handles.iter().map(|handle| (&*handle.descriptor, handle.bytes));
    program.allocator.import(&handles.collect::<Vec<_>>())
}

fn weak(exported: Exported) -> Vec<Weak<Descriptor>> {
    exported.handles.iter().map(|handle| Arc::downgrade(&handle.descriptor)).collect()
}

fn a_block_is_imported_as_it_was_exported(setup: &Setup) {
    let program = setup.program();
    let lane = program.default_lane();
    let (small, large) = (program.allocate(lane, 700), program.allocate(lane, 37 << 20));
    for block in [&small, &large] {
        let exported = match program.allocator.export(block.address) {
            Err(error) if !setup.is_vmm() => {
                let is_known = matches!(error, ShareError::Plain { .. } | ShareError::DriversOwn);
                assert!(is_known, "{error}");
                continue;
            }
            Err(ShareError::NotShareable { .. }) => continue,
            exported => exported.unwrap(),
        };
        let reserved = program.reserved();
        let bytes: u64 = exported.handles.iter().map(|handle| handle.bytes).sum();
        let imported = import(&program, &exported).unwrap();
        assert_eq!(imported.bytes(), bytes);
        assert!(exported.offset_bytes + block.bytes <= bytes);
        assert_ne!(imported.address() + exported.offset_bytes, block.address);
        assert_eq!(program.reserved(), reserved, "the exporter counts it");
        let second = import(&program, &exported).unwrap();
        assert_ne!(second.address(), imported.address());
    }
    program.free(small);
    program.free(large);
    program.end();
}

fn descriptors_are_open_until_the_memory_goes_back(setup: &Setup) {
    let program = setup.program();
    let lane = program.default_lane();
    let block = program.allocate(lane, 3 * setup.unit_bytes());
    let Ok(exported) = program.allocator.export(block.address) else { return };
    let again = program.allocator.export(block.address).unwrap();
    for (one, other) in exported.handles.iter().zip(&again.handles) {
        assert!(Arc::ptr_eq(&one.descriptor, &other.descriptor));
    }
    drop(again);
    let descriptors = weak(exported);
    program.free(block);
    assert!(descriptors.iter().all(|descriptor| descriptor.strong_count() == 1));
    program.allocator.trim().unwrap();
    assert!(descriptors.iter().all(|descriptor| descriptor.strong_count() == 0));
    assert_eq!(program.reserved(), 0);
    program.end();
}

/// The handles behind a live block are the same whatever is remapped around it, also where it is in
/// a window itself.
fn an_exported_block_stays_what_it_was_while_others_move(setup: &Setup) {
    if !setup.is_vmm() {
        return;
    }
    let program = setup.program();
    let (lane, unit) = (program.default_lane(), setup.unit_bytes());
    let mut pieces: Vec<_> = (0..12).map(|_| program.allocate(lane, unit)).collect();
    let mut kept = Vec::new();
    while let Some(piece) = pieces.pop() {
        kept.push(piece);
        pieces.pop().into_iter().for_each(|piece| program.free(piece));
    }
    let window = program.allocate(lane, 4 * unit);
    let whole = kept.pop().unwrap();
    let blocks = [&window, &whole];
    let Ok(before) = program.allocator.export(blocks[0].address) else { return };
    let before = [before, program.allocator.export(blocks[1].address).unwrap()];
    kept.into_iter().for_each(|piece| program.free(piece));
    let larger = program.allocate(lane, 6 * unit);
    program.allocator.trim().unwrap();
    for (block, before) in blocks.into_iter().zip(&before) {
        let after = program.allocator.export(block.address).unwrap();
        assert_eq!(after.offset_bytes, before.offset_bytes);
        assert_eq!(after.handles.len(), before.handles.len());
        for (one, other) in after.handles.iter().zip(&before.handles) {
            assert!(Arc::ptr_eq(&one.descriptor, &other.descriptor));
        }
    }
    drop(before);
    for block in [window, whole, larger] {
        program.free(block);
    }
    program.end();
}

/// A pool was released with a live block in a window, of which a trim has unmapped the rest.
fn what_is_left_of_a_window_is_exported(setup: &Setup) {
    if !setup.is_vmm() {
        return;
    }
    let program = setup.program();
    let (lane, unit, pool) =
        (program.default_lane(), setup.unit_bytes(), program.allocator.add_pool());
    let take = |units: u64| program.try_allocate_in(pool, lane, units * unit).unwrap();
    let (mut pieces, kept): (Vec<_>, Vec<_>) = (0..3).map(|_| (take(1), take(1))).unzip();
    pieces.drain(..).for_each(|piece| program.free(piece));
    let window = take(3);
    let start = window.address;
    program.free(window);
    // Two of the three pieces are behind its front.
    let mut live = None;
    for nth in 0..3 {
        let mut homes: Vec<_> = (0..3).map(|_| take(1)).collect();
        let held = homes.remove(nth);
        homes.into_iter().for_each(|piece| program.free(piece));
        let block = take(2);
        if block.address == start {
            live = Some(block);
            program.free(held);
            break;
        }
        program.free(block);
        program.free(held);
    }
    let live = live.unwrap();
    program.allocator.release_pool(pool).unwrap();
    program.allocator.trim().unwrap();
    let around = program.allocator.allocation_around(start).unwrap();
    assert!(around.start <= start && live.address + live.bytes <= around.end);
    match program.allocator.export_range(around) {
        Err(ShareError::NotShareable { .. }) => {}
        exported => drop(import(&program, &exported.unwrap()).unwrap()),
    }
    kept.into_iter().chain([live]).for_each(|block| program.free(block));
    program.end();
}

fn imports_outlive_a_capture(setup: &Setup) {
    let program = setup.program();
    let lane = program.default_lane();
    let block = program.allocate(lane, setup.unit_bytes());
    let Ok(exported) = program.allocator.export(block.address) else { return };
    let (first, second) = (import(&program, &exported).unwrap(), import(&program, &exported));
    let captured = program.lane();
    program.device.begin_capture(captured.stream, CaptureMode::Global);
    let working = program.allocate(captured, 512);
    drop(first);
    let refused = import(&program, &exported).unwrap_err();
    assert!(matches!(refused, ShareError::Driver { .. }), "{refused}");
    assert!(program.device.end_capture(captured.stream), "the capture is broken");
    program.free(working);
    drop(second);
    drop(exported);
    program.free(block);
    program.end();
}

fn what_is_no_block_is_not_exported(setup: &Setup) {
    let program = setup.program();
    let lane = program.default_lane();
    if setup.is_caching() {
        let refused = program.allocator.export(0x1000).unwrap_err();
        assert_eq!(refused, ShareError::Block(FreeError::Unknown { address: 0x1000 }));
    }
    assert!(matches!(program.allocator.import(&[]), Err(ShareError::Sizes { .. })));
    let block = program.allocate(lane, setup.unit_bytes());
    if let Ok(exported) = program.allocator.export(block.address) {
        let handle = &exported.handles[0];
        let halved = [(&*handle.descriptor, handle.bytes / 2 + 512)];
        let refused = program.allocator.import(&halved).unwrap_err();
        assert!(matches!(refused, ShareError::Sizes { .. }), "{refused}");
    }
    program.free(block);
    program.end();
}
