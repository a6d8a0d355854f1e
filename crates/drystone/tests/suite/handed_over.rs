//! Handles that go from one process to another as they are: two programs on one device, of which
//! one gives what the other lacks.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use drystone::driver::{Call, ErrorCode};
use drystone::{Allocator, Gift, LooseHandle, Neighbour, Neighbours, Options};
use drystone_sim::{FaultMode, FaultPlan, SimConfig, SimDevice};

use crate::program::{Block, Lane, Program};
use crate::sim::{MIB, watched};

const LONG: Duration = Duration::from_secs(60);

/// One other process, whose gifts may be changed on their way.
struct Other {
    giver: Mutex<Option<Allocator>>,
    change: fn(&mut Gift),
    descriptors_max: usize,
}

impl Neighbours for Other {
    fn wait(&self) -> Duration {
        LONG
    }

    fn ask(&self, bytes: u64, takes_handles: bool, _: Instant) -> Gift {
        let giver = self.giver.lock().unwrap();
        let mut gift = giver.as_ref().map_or_else(Gift::default, |giver| {
            giver.give_to_neighbours(bytes, takes_handles, Duration::from_secs(1))
        });
        (self.change)(&mut gift);
        gift
    }

    fn descriptors_max(&self) -> usize {
        self.descriptors_max
    }

    fn end(&self) {}

    fn tell(&self, _: u64, _: u64) {}

    fn offered_bytes(&self) -> u64 {
        let giver = self.giver.lock().unwrap();
        giver.as_ref().map_or(0, |giver| giver.unused_bytes())
    }

    fn others(&self, _: bool) -> Vec<Neighbour> {
        Vec::new()
    }
}

/// Two programs on a device of 1 GiB.
struct Two {
    device: SimDevice,
    giver: Program,
    taker: Program,
    other: &'static Other,
}

impl Two {
    fn new(change: fn(&mut Gift)) -> Self {
        Self::with(change, Options::default(), 64)
    }

    fn with(change: fn(&mut Gift), options: Options, descriptors_max: usize) -> Self {
        // Calls may be refused.
        let config = SimConfig { total_bytes: 1024 * MIB, strict: false, ..watched() };
        let device = SimDevice::new(config);
        let program = |options| Program::new(Arc::new(device.clone()), options);
        let (giver, taker) = (program(Options::default()), program(options));
        let allocator = Mutex::new(Some(giver.allocator.clone()));
        let other = Other { giver: allocator, change, descriptors_max };
        let other: &'static Other = Box::leak(Box::new(other));
        taker.allocator.set_neighbours(other);
        Self { device, giver, taker, other }
    }

    /// The giver has used so much.
    fn cache(&self, bytes: u64) {
        let block = self.giver.allocate(self.giver.default_lane(), bytes);
        self.giver.free(block);
    }

    fn lane(&self) -> Lane {
        self.taker.default_lane()
    }

    /// What a request of the taker's has created, in bytes.
    fn created(&self, bytes: u64) -> (Block, u64) {
        let before = self.device.bytes_of(Call::Create);
        let block = self.taker.allocate(self.lane(), bytes);
        (block, self.device.bytes_of(Call::Create) - before)
    }

    /// Both end, with nothing left of either.
    fn end(self) {
        *self.other.giver.lock().unwrap() = None;
        self.giver.check();
        drop(self.giver);
        self.taker.end();
    }
}

#[test]
fn what_another_has_unused_backs_a_request_as_it_is() {
    let two = Two::new(|_| ());
    two.cache(768 * MIB);
    let (block, created) = two.created(512 * MIB);
    assert_eq!(created, 256 * MIB, "what was free on the device");
    assert_eq!([&two.giver, &two.taker].map(Program::reserved), [512 * MIB, 512 * MIB]);
    assert_eq!(two.device.physical_bytes(), 1024 * MIB);
    // And on: what came by a descriptor goes by it.
    two.taker.free(block);
    let exports = two.device.calls_of(Call::Export);
    let gift = two.taker.allocator.give_to_neighbours(512 * MIB, true, LONG);
    let handed = gift.handles.iter().map(|one| one.bytes).sum::<u64>();
    assert_eq!((gift.bytes, handed), (512 * MIB, 512 * MIB));
    let fresh = two.device.calls_of(Call::Export) - exports;
    assert!(fresh < gift.handles.len() as u64, "{fresh} of {}", gift.handles.len());
    assert_eq!(two.device.physical_bytes(), 1024 * MIB, "descriptors keep it");
    drop(gift);
    assert_eq!(two.device.physical_bytes(), 512 * MIB);
    two.end();
}

#[test]
fn what_others_know_goes_back_to_the_device() {
    let two = Two::new(|_| ());
    let lane = two.giver.default_lane();
    let block = two.giver.allocate(lane, 768 * MIB);
    let exported = two.giver.allocator.export(block.address).unwrap();
    two.giver.free(block);
    let gift = two.giver.allocator.give_to_neighbours(768 * MIB, true, LONG);
    assert_eq!((gift.bytes, gift.handles.len()), (768 * MIB, 0));
    drop(exported);
    two.end();
}

#[test]
fn what_is_adopted_can_be_exported() {
    let two = Two::new(|_| ());
    two.cache(1024 * MIB);
    let (block, created) = two.created(512 * MIB);
    assert_eq!(created, 0);
    let exported = two.taker.allocator.export(block.address).unwrap();
    assert!(exported.handles.len() > 1);
    two.taker.free(block);
    // Others know it now.
    let gift = two.taker.allocator.give_to_neighbours(512 * MIB, true, LONG);
    assert_eq!((gift.bytes, gift.handles.len()), (512 * MIB, 0));
    drop(exported);
    two.end();
}

/// What a giver says is believed only as far as the driver bears it out.
#[test]
fn gifts_that_are_not_what_they_seem_lose_nothing() {
    let changes: [fn(&mut Gift); 6] = [
        |gift| gift.handles.iter_mut().for_each(|one| one.bytes *= 2),
        |gift| gift.handles.iter_mut().for_each(|one| one.bytes /= 2),
        |gift| gift.handles.iter_mut().for_each(|one| one.bytes = u64::MAX),
        |gift| gift.handles.iter_mut().for_each(|one| one.bytes = 0),
        |gift| gift.handles.clear(),
        |gift| {
            let null = || std::fs::File::open("/dev/null").unwrap().into();
            gift.handles.iter_mut().for_each(|one| one.descriptor = null());
        },
    ];
    for change in changes {
        let two = Two::new(change);
        two.cache(768 * MIB);
        let (block, created) = two.created(512 * MIB);
        assert_eq!((created, two.taker.reserved()), (512 * MIB, 512 * MIB), "by the device");
        two.taker.free(block);
        two.end();
    }
}

/// The giver was killed before it could say so, or was late for the request before.
#[test]
fn what_comes_without_an_answer_serves_the_request() {
    let two = Two::new(|gift| gift.bytes = 0);
    two.cache(768 * MIB);
    let (block, created) = two.created(512 * MIB);
    assert_eq!((created, two.taker.reserved()), (256 * MIB, 512 * MIB));
    two.taker.free(block);
    two.end();
}

#[test]
fn no_more_is_taken_in_than_the_limit_and_descriptors_leave_room_for() {
    let limited = Options::default().with_limit_bytes(300 * MIB);
    for (options, descriptors_max) in [(limited, 64), (Options::default(), 1), (limited, 0)] {
        let two = Two::with(|_| (), options, descriptors_max);
        two.cache(1024 * MIB);
        let (block, created) = two.created(300 * MIB);
        let (adopted, reserved) = (two.taker.reserved() - created, two.taker.reserved());
        match descriptors_max {
            0 => assert_eq!(adopted, 0),
            1 => assert!((1..=128 * MIB).contains(&adopted), "{}", adopted / MIB),
            _ => assert!(adopted >= 172 * MIB, "{}", adopted / MIB),
        }
        assert!(reserved <= options.limit_bytes.unwrap_or(304 * MIB), "{}", reserved / MIB);
        two.taker.free(block);
        two.end();
    }
}

#[test]
fn small_blocks_get_no_large_handle() {
    let two = Two::new(|_| ());
    two.cache(1024 * MIB);
    let (large, _) = two.created(3 * MIB);
    let before = two.taker.reserved();
    let (small, created) = two.created(MIB / 2);
    assert!(created <= 2 * MIB && two.taker.reserved() <= before + 2 * MIB);
    two.taker.free(large);
    two.taker.free(small);
    two.end();
}

/// P4: whichever call fails, the request is served, by the device if not as it is, or refused; and
/// nothing is left at the end.
#[test]
fn p4_each_call_of_a_gift_fails_once_and_nothing_is_lost() {
    let calls = [
        Call::Export,
        Call::Import,
        Call::Reserve,
        Call::Unreserve,
        Call::Map,
        Call::Unmap,
        Call::SetAccess,
        Call::Release,
        Call::Create,
    ];
    for (call, nth) in calls.into_iter().flat_map(|call| (1..=4).map(move |nth| (call, nth))) {
        let two = Two::new(|_| ());
        two.cache(768 * MIB);
        let (mode, code) = (FaultMode::Once, ErrorCode::Other(999));
        let seen = two.device.calls_of(call);
        two.device.install_fault(FaultPlan { call, nth, mode, code });
        let served = two.taker.try_allocate(two.lane(), 512 * MIB);
        if two.device.calls_of(call) >= seen + nth && matches!(call, Call::Export | Call::Import) {
            assert!(served.is_ok(), "{call:?} {nth}: {served:?}");
        }
        // What fails at the end is another matter.
        two.device.clear_faults();
        two.taker.check();
        if let Ok(block) = served {
            two.taker.free(block);
        }
        let (block, _) = two.created(512 * MIB);
        two.taker.free(block);
        two.end();
    }
}

/// Where nothing can be handed over, it goes by way of the device.
#[test]
fn a_device_that_shares_nothing_gives_all_the_same() {
    let config = SimConfig { total_bytes: 1024 * MIB, is_shareable: false, ..watched() };
    let program = Program::new(Arc::new(SimDevice::new(config)), Options::default());
    let lane = program.default_lane();
    let block = program.allocate(lane, 512 * MIB);
    program.free(block);
    let Gift { bytes, handles } = program.allocator.give_to_neighbours(512 * MIB, true, LONG);
    assert_eq!((bytes, handles.iter().map(|one: &LooseHandle| one.bytes).sum()), (512 * MIB, 0));
    program.end();
}
