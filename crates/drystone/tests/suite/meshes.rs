//! Pages that share a granule: what lies unused in parts of granules serves requests, where every
//! granule is in use in part. Whatever fails, no byte is lost. The device's oracle follows it all.

use drystone::driver::{Call, CaptureMode, ErrorCode};

use crate::moves::{CALLS, TOTAL, closed, fails, moves};
use crate::program::{Block, Lane, Program};
use crate::sim::{MIB, watched};

/// Two of them touch at most three granules, and leave none whole.
const BYTES: u64 = 5 * MIB / 4;
/// What the meshes of such a program give at least.
const SHARED: u64 = 64 * MIB;

/// Fills the device except what moves keep as room, and frees every other block: those that stay.
pub fn halves(program: &Program, lane: Lane) -> Vec<Block> {
    let blocks = (0..(TOTAL - 64 * MIB) / BYTES).map(|_| program.allocate(lane, BYTES));
    let blocks: Vec<Block> = blocks.collect();
    let mut kept = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        if at % 2 == 0 { kept.push(block) } else { program.free(block) }
    }
    kept
}

/// What the device has left beside all granules in use, and what sharing them gives.
pub fn shared(program: &Program) -> u64 {
    TOTAL - program.reserved() + SHARED
}

#[test]
fn parts_of_granules_serve_a_request() {
    let (program, device) = closed(watched());
    let lane = program.lane();
    let kept = halves(&program, lane);
    let other = program.lane();
    kept.iter().for_each(|block| program.use_on(block, other));
    let large = program.allocate(lane, shared(&program));
    assert!(moves(&program) > 0);
    program.check();
    kept.iter().for_each(|block| program.use_on(block, other));
    assert_eq!(program.reserved(), device.physical_bytes());
    program.free(large);
    // What is freed in a shared granule serves the same page.
    let (first, second): (Vec<_>, Vec<_>) =
        kept.into_iter().enumerate().partition(|(at, _)| at % 3 == 0);
    first.into_iter().for_each(|(_, block)| program.free(block));
    let again: Vec<Block> = (0..second.len() / 2).map(|_| program.allocate(lane, BYTES)).collect();
    program.check();
    second.into_iter().for_each(|(_, block)| program.free(block));
    again.into_iter().for_each(|block| program.free(block));
    let all = program.allocate(lane, TOTAL - 32 * MIB);
    program.free(all);
    program.end();
}

/// Fills the device except what moves keep as room with blocks of a quarter of a granule, of which
/// every fifth stays: those of four granules fit on one.
#[test]
fn many_pages_share_a_granule() {
    let (program, device) = closed(watched());
    let lane = program.lane();
    let blocks = (0..(TOTAL - 64 * MIB) / (MIB / 2)).map(|_| program.allocate(lane, MIB / 2));
    let blocks: Vec<Block> = blocks.collect();
    let (kept, freed): (Vec<_>, Vec<_>) =
        blocks.into_iter().enumerate().partition(|(at, _)| at % 5 == 0);
    freed.into_iter().for_each(|(_, block)| program.free(block));
    let kept: Vec<Block> = kept.into_iter().map(|(_, block)| block).collect();
    let other = program.lane();
    kept.iter().for_each(|block| program.use_on(block, other));
    // A fifth is in use. By pairs three fifths could be had.
    let large = program.allocate(lane, TOTAL / 10 * 7);
    program.check();
    kept.iter().for_each(|block| program.use_on(block, other));
    assert_eq!(program.reserved(), device.physical_bytes());
    kept.into_iter().for_each(|block| program.free(block));
    program.free(large);
    let all = program.allocate(lane, TOTAL - 32 * MIB);
    program.free(all);
    program.end();
}

#[test]
fn no_granule_is_shared_while_anything_is_captured_or_where_it_would_not_do() {
    let (program, device) = closed(watched());
    let lane = program.lane();
    let kept = halves(&program, lane);
    assert!(program.try_allocate(lane, TOTAL - kept.len() as u64 * BYTES).is_err());
    assert_eq!(moves(&program), 0);
    let captured = program.lane();
    device.begin_capture(captured.stream, CaptureMode::Relaxed).unwrap();
    assert!(program.try_allocate(lane, shared(&program)).is_err());
    assert_eq!(moves(&program), 0);
    device.end_capture(captured.stream).unwrap();
    kept.into_iter().for_each(|block| program.free(block));
    program.end();
}

#[test]
fn p4_no_byte_is_lost_whatever_call_of_a_mesh_fails() {
    let scene = |program: &Program, lane: Lane| {
        let kept = halves(program, lane);
        (kept, shared(program))
    };
    // Memory is left: no addresses are reserved, or given back.
    for call in CALLS.into_iter().filter(|call| !matches!(call, Call::Reserve | Call::Unreserve)) {
        for code in [ErrorCode::InvalidHandle, ErrorCode::NotReady] {
            // Of the moves that part handles, and of meshes.
            let is_struck = |&nth: &u64| fails(scene, &[(call, nth)], code);
            let struck = (1..400).step_by(37).filter(is_struck).count();
            assert!(struck > 0, "{call:?} is never made");
        }
    }
}
