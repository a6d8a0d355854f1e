//! Private pools: they share nothing while they live (P8, I12), and a trim gives
//! their memory back only after their release.

use drystone::{AllocateError, Backend, PoolId, RequestError};

use crate::setup::{Setup, on_every_setup};
use crate::sim::MIB;

on_every_setup!(
    a_private_pool_shares_nothing,
    b26_a_trim_spares_private_pools_until_they_are_released,
    a_trim_of_released_pools_leaves_what_the_default_pool_has_cached,
    blocks_outlive_the_release_of_their_pool,
    a_released_pool_is_unknown,
    b43_a_block_goes_back_to_the_pool_it_came_from,
    memory_of_a_private_pool_is_not_taken_at_the_limit,
);

fn a_private_pool_shares_nothing(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let pools = [PoolId::DEFAULT, program.allocator.add_pool(), program.allocator.add_pool()];
    for bytes in [700, 12 * MIB] {
        let mut seen = Vec::new();
        for pool in pools {
            let block = program.try_allocate_in(pool, lane, bytes).unwrap();
            let address = block.address;
            assert!(!seen.contains(&address), "{pool:?} serves another pool");
            program.free(block);
            // Within the pool, another stream gets it, at the latest once the first is done.
            program.device.pass(1000);
            let block = program.try_allocate_in(pool, other, bytes).unwrap();
            assert_eq!(block.address, address);
            program.free(block);
            seen.push(address);
        }
        program.check();
    }
    program.end();
}

fn b26_a_trim_spares_private_pools_until_they_are_released(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let pool = program.allocator.add_pool();
    let block = program.try_allocate_in(pool, lane, 12 * MIB).unwrap();
    let (address, held) = (block.address, program.reserved());
    program.free(block);
    assert_eq!(program.allocator.trim().unwrap(), 0);
    let block = program.try_allocate_in(pool, lane, 12 * MIB).unwrap();
    assert_eq!((block.address, program.reserved()), (address, held), "still there");
    program.free(block);
    program.allocator.release_pool(pool).unwrap();
    assert_eq!(program.reserved(), held, "release itself gives nothing back");
    assert_eq!(program.allocator.trim().unwrap(), held);
    program.end();
}

fn a_trim_of_released_pools_leaves_what_the_default_pool_has_cached(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    // In use until the pools have memory of their own: else they borrow it.
    let block = program.allocate(lane, 12 * MIB);
    let cached = program.reserved();
    let pools = [program.allocator.add_pool(), program.allocator.add_pool()];
    for pool in pools {
        program.free(program.try_allocate_in(pool, lane, 12 * MIB).unwrap());
    }
    program.free(block);
    let held = program.reserved();
    program.allocator.release_pool(pools[0]).unwrap();
    let given_back = program.allocator.trim_released().unwrap();
    assert_eq!(program.reserved(), held - given_back);
    if program.allocator.backend() != Backend::Async {
        assert!(given_back >= 12 * MIB);
        assert!(program.reserved() >= cached + 12 * MIB, "of the default pool, and of a live one");
    }
    program.allocator.release_pool(pools[1]).unwrap();
    program.end();
}

fn blocks_outlive_the_release_of_their_pool(setup: &Setup) {
    let program = setup.program();
    let (lane, other) = (program.lane(), program.lane());
    let pool = program.allocator.add_pool();
    let blocks = [700, 12 * MIB].map(|bytes| program.try_allocate_in(pool, lane, bytes).unwrap());
    program.allocator.release_pool(pool).unwrap();
    program.allocator.trim().unwrap();
    assert!(program.reserved() >= blocks[0].bytes + blocks[1].bytes);
    program.use_on(&blocks[1], other);
    program.check();
    blocks.into_iter().for_each(|block| program.free(block));
    program.allocator.trim().unwrap();
    assert_eq!(program.reserved(), 0);
    program.end();
}

fn a_released_pool_is_unknown(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let pool = program.allocator.add_pool();
    program.allocator.release_pool(pool).unwrap();
    let error = program.try_allocate_in(pool, lane, MIB).unwrap_err();
    assert_eq!(error, AllocateError::Request(RequestError::UnknownPool { pool }));
    assert!(program.allocator.release_pool(pool).is_err());
    assert!(program.allocator.release_pool(PoolId::DEFAULT).is_err());
    let block = program.allocate(lane, MIB);
    program.free(block);
    program.end();
}

fn b43_a_block_goes_back_to_the_pool_it_came_from(setup: &Setup) {
    let program = setup.program();
    let lane = program.lane();
    let pool = program.allocator.add_pool();
    let mut blocks = Vec::new();
    for round in 0..20u64 {
        let pool = if round % 2 == 0 { pool } else { PoolId::DEFAULT };
        blocks.push(program.try_allocate_in(pool, lane, (round + 1) * 300_000).unwrap());
    }
    let views = program.allocator.snapshot();
    assert!(views.iter().any(|view| view.pool == 0) && views.iter().any(|view| view.pool == 1));
    blocks.into_iter().rev().for_each(|block| program.free(block));
    program.check();
    program.end();
}

fn memory_of_a_private_pool_is_not_taken_at_the_limit(setup: &Setup) {
    let program = setup.program_with_limit(64 * MIB);
    let lane = program.lane();
    let pool = program.allocator.add_pool();
    let block = program.try_allocate_in(pool, lane, 32 * MIB).unwrap();
    let address = block.address;
    program.free(block);
    program.try_allocate(lane, 64 * MIB).unwrap_err();
    let block = program.try_allocate_in(pool, lane, 32 * MIB).unwrap();
    assert_eq!(block.address, address, "a graph may hold this address");
    program.free(block);
    program.allocator.release_pool(pool).unwrap();
    let block = program.allocate(lane, 64 * MIB);
    program.free(block);
    program.end();
}
