//! Pressure: the program's callbacks when memory runs out. Called last, with no lock held (I14),
//! and what they free serves.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::program::Block;
use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    b15_b17_a_callback_may_use_the_allocator,
    callbacks_are_the_last_resort,
    every_callback_is_asked,
    b28_what_callbacks_free_in_pieces_serves_the_request,
    a_callback_that_frees_nothing_ends_in_out_of_memory,
);

fn b15_b17_a_callback_may_use_the_allocator(setup: &Setup) {
    let program = setup.program_with_limit(64 * MIB);
    let lane = program.lane();
    let cache = program.allocate(lane, 64 * MIB).address;
    let (allocator, device) = (program.allocator.clone(), Arc::clone(&program.device));
    let weak = Arc::new(Mutex::new(Some((allocator, cache))));
    let held = Arc::clone(&weak);
    program.allocator.on_out_of_memory(Arc::new(move |bytes| {
        assert_eq!(bytes, 56 * MIB);
        let Some((allocator, cache)) = held.lock().unwrap().take() else { return false };
        assert!(allocator.stats().all.allocated_bytes.current >= 64 * MIB);
        assert!(!allocator.snapshot().is_empty());
        allocator.check().unwrap();
        assert!(format!("{allocator:?}").contains("stats"));
        // It may run out of memory itself: it is asked again, and has nothing left to give.
        allocator.set_limit(64 * MIB);
        device.taken_back(cache);
        allocator.free(cache).unwrap();
        let block = allocator.allocate(lane.id, 512).unwrap();
        drop(block);
        allocator.trim().unwrap();
        true
    }));
    let block = program.allocate(lane, 56 * MIB);
    program.check();
    program.free(block);
    program.end();
}

fn counter(program: &crate::program::Program, frees: bool) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    program.allocator.on_out_of_memory(Arc::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        frees
    }));
    count
}

fn callbacks_are_the_last_resort(setup: &Setup) {
    let program = setup.program_with_limit(64 * MIB);
    let (lane, other) = (program.lane(), program.lane());
    let asked = counter(&program, false);
    let pending = program.allocate(lane, 64 * MIB);
    program.use_on(&pending, other);
    program.device.work(other.stream, 100_000);
    program.free(pending);
    let block = program.allocate(other, 56 * MIB);
    program.free(block);
    assert_eq!(asked.load(Ordering::Relaxed), 0, "waiting and trimming was enough");
    program.try_allocate(other, 72 * MIB).unwrap_err();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    program.end();
}

fn every_callback_is_asked(setup: &Setup) {
    let program = setup.program_with_limit(64 * MIB);
    let lane = program.lane();
    let asked = [counter(&program, true), counter(&program, false), counter(&program, true)];
    program.try_allocate(lane, 72 * MIB).unwrap_err();
    assert_eq!(asked.map(|one| one.load(Ordering::Relaxed)), [1, 1, 1]);
    program.end();
}

/// Four blocks that are no neighbours, and on another stream than the request.
fn b28_what_callbacks_free_in_pieces_serves_the_request(setup: &Setup) {
    let program = setup.program_with_limit(64 * MIB);
    let (lane, other) = (program.lane(), program.lane());
    let blocks: Vec<Block> = (0..4).map(|_| program.allocate(other, 16 * MIB)).collect();
    let cache = Arc::new(Mutex::new(blocks));
    let (held, allocator) = (Arc::clone(&cache), program.allocator.clone());
    let device = Arc::clone(&program.device);
    program.allocator.on_out_of_memory(Arc::new(move |_| {
        let blocks = std::mem::take(&mut *held.lock().unwrap());
        for block in &blocks {
            device.taken_back(block.address);
            allocator.free(block.address).unwrap();
        }
        !blocks.is_empty()
    }));
    let block = program.allocate(lane, 64 * MIB);
    program.check();
    program.free(block);
    // The callback holds the allocator: without this it would live forever.
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    program.check();
}

fn a_callback_that_frees_nothing_ends_in_out_of_memory(setup: &Setup) {
    let program = setup.program_with_limit(32 * MIB);
    let lane = program.lane();
    let asked = counter(&program, true);
    for round in 1..=3 {
        program.try_allocate(lane, 64 * MIB).unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), round, "one question for each request");
    }
    program.end();
}
