//! A device whose memory is the host's: growth leaves the host its floor, whoever else takes.

use std::sync::Arc;

use drystone::driver::{CaptureMode, Driver};
use drystone::{AllocateError, Cause, OutOfMemory};
use drystone_sim::{Host, Profile, Rng, SimConfig, SimDevice};

use crate::program::{Block, Lane, Program};
use crate::setup::{MALLOC, Setup, VMM_2MIB};
use crate::sim::{GIB, MIB, watched};

const FLOOR: u64 = 256 * MIB;

/// 4 GiB, of which the host's programs have 128 MiB. It stops below 64 MiB.
fn device() -> SimDevice {
    SimDevice::new(Profile::Unified.applied_to(SimConfig { can_hold_streams: true, ..watched() }))
}

fn program(device: &SimDevice, setup: &Setup) -> (Program, Lane) {
    let program = Program::new(Arc::new(device.clone()), setup.options());
    let lane = program.default_lane();
    (program, lane)
}

fn lowest(device: &SimDevice) -> u64 {
    device.host_free_and_lowest_bytes().unwrap().1
}

fn refused(program: &Program, lane: Lane, bytes: u64) -> Box<OutOfMemory> {
    match program.try_allocate(lane, bytes) {
        Err(AllocateError::OutOfMemory(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn growth_leaves_the_host_its_floor_and_the_error_says_so() {
    for setup in [VMM_2MIB, MALLOC] {
        let device = device();
        let (program, lane) = program(&device, &setup);
        let budget = program.allocator.budget().unwrap();
        assert_eq!(budget.device_bytes, 4 * GIB - 128 * MIB - FLOOR);
        assert_eq!(program.allocator.available().unwrap(), budget.device_bytes);
        let kept = program.allocate(lane, 3 * GIB);
        let calls = device.calls();
        let error = refused(&program, lane, GIB - 300 * MIB);
        assert_eq!(error.cause(), Cause::HostFloor(GIB - 128 * MIB, FLOOR));
        let text = error.to_string();
        for part in ["896.00 MiB are available", "256.00 MiB are left to the host", "host_floor"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(device.calls(), calls, "the driver is not asked for what would stop the host");
        let rest = program.allocate(lane, GIB - 128 * MIB - FLOOR);
        assert_eq!(lowest(&device), FLOOR);
        [kept, rest].into_iter().for_each(|block| program.free(block));
        program.end();
    }
}

/// The allocator gives back what it has unused before it refuses.
#[test]
fn what_is_unused_makes_room_above_the_floor() {
    let device = device();
    let (program, lane) = program(&device, &VMM_2MIB);
    let odd: Vec<_> = (0..30).map(|_| program.allocate(lane, 100 * MIB)).collect();
    odd.into_iter().for_each(|block| program.free(block));
    // What the host takes meanwhile is seen by the next growth.
    device.set_host_programs(512 * MIB);
    let large = program.allocate(lane, 3200 * MIB);
    assert!(lowest(&device) >= FLOOR, "{}", lowest(&device));
    assert!(program.reserved() <= 4 * GIB - 512 * MIB - FLOOR);
    program.free(large);
    program.end();
}

/// File pages are free for whoever asks, in handles as small as such pages allow.
#[test]
fn the_page_cache_is_memory_that_can_be_had() {
    for setup in [VMM_2MIB, MALLOC] {
        let device = device();
        device.read_files(8 * GIB);
        assert_eq!(device.host_free_and_lowest_bytes().unwrap().0, 0);
        let (program, lane) = program(&device, &setup);
        let blocks: Vec<_> = (0..30).map(|_| program.allocate(lane, 100 * MIB)).collect();
        assert!(lowest(&device) >= FLOOR);
        blocks.into_iter().for_each(|block| program.free(block));
        program.end();
    }
}

#[test]
fn a_capture_grows_no_further_than_the_floor_either() {
    let device = device();
    let (program, _) = program(&device, &VMM_2MIB);
    let lane = program.lane();
    let kept = program.allocate(lane, 3 * GIB);
    device.set_host_programs(512 * MIB);
    let pool = program.allocator.add_pool();
    program.device.begin_capture(lane.stream, CaptureMode::Global);
    let inside = program.try_allocate_in(pool, lane, 200 * MIB).unwrap();
    assert!(program.try_allocate_in(pool, lane, 100 * MIB).is_err());
    assert!(lowest(&device) >= FLOOR);
    assert!(program.device.end_capture(lane.stream), "the capture holds");
    program.device.end_graphs();
    [kept, inside].into_iter().for_each(|block| program.free(block));
    program.allocator.release_pool(pool).unwrap();
    program.end();
}

#[test]
fn off_leaves_nothing_and_a_device_of_its_own_is_left_alone() {
    let device = device();
    let options = VMM_2MIB.options().with_host_floor_bytes(Some(0));
    let program = Program::new(Arc::new(device.clone()), options);
    let lane = program.default_lane();
    assert_eq!(program.allocator.budget().unwrap().device_bytes, 4 * GIB - 128 * MIB);
    let most = program.allocate(lane, 3800 * MIB);
    assert!(lowest(&device) < FLOOR);
    program.free(most);
    program.end();
    let discrete = SimDevice::new(watched());
    assert!(!discrete.info().is_integrated);
    let options = VMM_2MIB.options().with_host_floor_bytes(Some(GIB));
    let program = Program::new(Arc::new(discrete), options);
    let lane = program.default_lane();
    let all = program.allocate(lane, 4 * GIB);
    program.free(all);
    program.end();
}

/// The host's programs come and go at random; whatever they leave, growth takes none of the floor.
#[test]
fn no_growth_ever_takes_of_the_floor() {
    for (setup, seed) in [VMM_2MIB, MALLOC].into_iter().flat_map(|one| [1, 2, 3].map(|s| (one, s)))
    {
        let device = device();
        let (program, lane) = program(&device, &setup);
        let other = program.lane();
        let mut rng = Rng::new(seed);
        let (mut live, mut refusals) = (Vec::<Block>::new(), 0);
        for step in 0..3000 {
            match rng.up_to(9) {
                0 => device.read_files(rng.up_to(2 * GIB)),
                1 => {
                    // No more than would take of the floor by itself.
                    let room = 4 * GIB - device.physical_bytes();
                    let most = room.saturating_sub(FLOOR).min(GIB);
                    device.set_host_programs(rng.up_to(most));
                }
                2..=5 => {
                    let bytes = 1 + rng.up_to(300 * MIB);
                    let lane = if rng.up_to(3) == 0 { other } else { lane };
                    match program.try_allocate(lane, bytes) {
                        Ok(block) => live.push(block),
                        Err(AllocateError::OutOfMemory(_)) => refusals += 1,
                        Err(error) => panic!("step {step}: {error}"),
                    }
                }
                _ if live.is_empty() => {}
                _ => {
                    let at = rng.up_to(live.len() as u64 - 1) as usize;
                    program.free(live.swap_remove(at));
                }
            }
            assert!(lowest(&device) >= FLOOR, "step {step}: {}", lowest(&device));
        }
        assert!(refusals > 2, "{refusals}");
        live.into_iter().for_each(|block| program.free(block));
        program.end();
    }
}

/// The host stops where nobody leaves it anything: the test's own measure.
#[test]
fn a_host_that_is_left_nothing_stops() {
    let device = device();
    let host = device.config().host.clone().unwrap();
    assert_eq!(host, Host { programs_bytes: 128 * MIB, line_bytes: 64 * MIB, ..host.clone() });
    assert!(device.malloc(3910 * MIB).is_err());
    assert!(device.create_event().is_err(), "and the driver with it");
    assert_eq!(device.violation_count(), 1);
}
