//! Addresses: what a process reserves on several devices, with many pools and streams on each.

use std::sync::Arc;

use drystone::PoolId;
use drystone_sim::{Profile, SimConfig, SimDevice};

use crate::program::{Block, Lane, Program};
use crate::setup::VMM_2MIB;
use crate::sim::{GIB, MIB};

const DEVICES: u64 = 8;
const TIB: u64 = 1 << 40;
/// What a process has.
const ADDRESSES: u64 = 1 << 47;

fn program(total_bytes: u64, address_space_bytes: u64) -> (SimDevice, Program) {
    let config =
        SimConfig { total_bytes, address_space_bytes, strict: true, ..SimConfig::default() };
    let sim = SimDevice::new(config);
    (sim.clone(), Program::new(Arc::new(sim), VMM_2MIB.options()))
}

/// As many pools as asked for, with the default pool, and as many streams.
fn pools_and_lanes(program: &Program, pools: usize, lanes: usize) -> (Vec<PoolId>, Vec<Lane>) {
    let mut all = vec![PoolId::DEFAULT];
    all.resize_with(pools, || program.allocator.add_pool());
    (all, (0..lanes).map(|_| program.lane()).collect())
}

/// A block of each size for each pool and stream.
fn fill(program: &Program, pools: &[PoolId], lanes: &[Lane], sizes: [u64; 2]) -> Vec<Block> {
    let each = pools.iter().flat_map(|&pool| lanes.iter().map(move |&lane| (pool, lane)));
    let each = each.flat_map(|(pool, lane)| sizes.map(|bytes| (pool, lane, bytes)));
    each.map(|(pool, lane, bytes)| program.try_allocate_in(pool, lane, bytes).unwrap()).collect()
}

fn free(program: &Program, blocks: Vec<Block>) {
    blocks.into_iter().for_each(|block| program.free(block));
}

#[test]
fn eight_devices_of_64_pools_and_64_streams_leave_half_of_the_addresses() {
    for memory in [80 * GIB, 288 * GIB] {
        let (sim, program) = program(memory, ADDRESSES / DEVICES);
        let (pools, lanes) = pools_and_lanes(&program, 64, 64);
        let blocks = fill(&program, &pools, &lanes, [MIB, memory / 5120]);
        let reserved_bytes = DEVICES * sim.reserved_address_bytes();
        assert!(reserved_bytes <= 64 * TIB, "{} GiB are reserved", reserved_bytes / GIB);
        assert!(reserved_bytes >= 16 * DEVICES * memory / 2, "what there is is made use of");
        free(&program, blocks);
        program.end();
    }
}

#[test]
fn many_pools_come_to_what_the_device_has_by_few_reservations() {
    let (sim, program) = program(80 * GIB, ADDRESSES / DEVICES);
    let (pools, lanes) = pools_and_lanes(&program, 16, 16);
    let blocks = fill(&program, &pools, &lanes, [MIB, 20 * MIB]);
    let before = sim.live_objects().reservations;
    // One of those that came last gets all there is left.
    let (pool, lane) = (pools[15], lanes[15]);
    let blocks_of_one = (0..2500).map(|_| program.try_allocate_in(pool, lane, 20 * MIB).unwrap());
    let blocks_of_one: Vec<_> = blocks_of_one.collect();
    let more = sim.live_objects().reservations - before;
    assert!(more <= 9, "{more} reservations for 48 GiB");
    free(&program, blocks_of_one);
    free(&program, blocks);
    program.end();
}

#[test]
fn where_large_ranges_are_refused_alone_a_list_has_room_for_more_than_it_needs() {
    // Under WSL.
    let config = SimConfig { total_bytes: 48 * GIB, strict: true, ..SimConfig::default() };
    let sim = SimDevice::new(Profile::Wsl2.applied_to(config));
    let program = Program::new(Arc::new(sim.clone()), VMM_2MIB.options());
    let lane = program.lane();
    let blocks: Vec<_> = (0..300).map(|_| program.allocate(lane, 100 * MIB)).collect();
    let reservations = sim.live_objects().reservations;
    assert!(reservations <= 10, "{reservations} reservations for 29 GiB");
    free(&program, blocks);
    program.end();
}

#[test]
fn a_process_with_few_addresses_left_serves_many_pools() {
    // As where another library of the process has reserved almost all.
    let (_, program) = program(80 * GIB, 2 * TIB);
    let (pools, lanes) = pools_and_lanes(&program, 32, 32);
    let blocks = fill(&program, &pools, &lanes, [MIB, 40 * MIB]);
    free(&program, blocks);
    let blocks = fill(&program, &pools, &lanes, [MIB / 2, 36 * MIB]);
    free(&program, blocks);
    program.end();
}
