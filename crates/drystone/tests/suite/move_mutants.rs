//! Moves with a bug, made by a driver that lies or by a program that keeps something to itself: the
//! device's oracle must catch each, as what it is, and must not accuse the same run without it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use drystone::Prefer;
use drystone::driver::{Call, CaptureMode, CaptureStatus, Driver, DriverError, Hold, Stream};
use drystone_sim::{SimConfig, SimDevice, Violation};

use crate::altered::{Alteration, Altered};
use crate::meshes::{halves, shared};
use crate::moves::{TOTAL, moves, rest, sparse};
use crate::program::{Block, Lane, Program};
use crate::setup::VMM_2MIB;
use crate::sim::watched;

type Result<T> = std::result::Result<T, DriverError>;

/// A stream that the allocator is only told of.
static OTHER: AtomicU64 = AtomicU64::new(0);

/// The bug, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// The harness itself is innocent.
    None,
    /// Nobody is held.
    NoHold,
    /// Streams that the allocator was only told of are not held.
    HoldsKnownStreamsAlone,
    /// Streams that are captured are taken for others, and not held.
    IgnoresCaptures,
    /// Copies begin, and are over, before streams have come to a stop.
    CopiesBeforeArrival,
    /// The old memory goes before its copy is complete.
    UnmapsBeforeCopiesEnd,
    /// Streams go on as soon as the copies are complete.
    LetsGoBeforeMapping,
    /// The new memory stays as it was.
    NoCopy,
    /// What is copied into a granule that two pages share stays as it was.
    NoCopyToHost,
    /// It is copied over what the other page uses.
    CopiesOverHost,
    /// The new memory is opened to this device alone.
    ForgetsPeers,
}

/// What a thread of the program does on a stream when a move comes to a call, once.
#[derive(Default)]
struct Alongside {
    at: Option<Call>,
    is_done: AtomicBool,
    stream: OnceLock<Stream>,
    blocks: OnceLock<Vec<u64>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A driver with a bug.
struct Buggy {
    bug: Bug,
    sim: SimDevice,
    alongside: Arc<Alongside>,
    held: Mutex<Option<Vec<Stream>>>,
    /// Those of a hold that is over early.
    hold: Mutex<Option<Hold>>,
}

impl Alteration for Buggy {
    fn before(&self, call: Call) {
        let one = &self.alongside;
        let is_moving = self.held.lock().unwrap().is_some();
        if one.at != Some(call) || !is_moving || one.is_done.swap(true, Ordering::Relaxed) {
            return;
        }
        let (Some(&stream), Some(blocks)) = (one.stream.get(), one.blocks.get()) else { return };
        let (sim, blocks, (tell, told)) = (self.sim.clone(), blocks.clone(), mpsc::channel());
        let thread = thread::spawn(move || {
            blocks.into_iter().for_each(|address| sim.check_use(address, stream));
            let _ = tell.send(());
        });
        // Where the stream is held, that thread waits for longer.
        let _ = told.recv_timeout(Duration::from_millis(30));
        *one.thread.lock().unwrap() = Some(thread);
    }

    fn hold(&self, inner: &dyn Driver, streams: &[Stream]) -> Option<Result<Hold>> {
        *self.held.lock().unwrap() = Some(streams.to_vec());
        let others = self.alongside.stream.get();
        let without = |left_out: &dyn Fn(Stream) -> bool| -> Vec<Stream> {
            streams.iter().copied().filter(|&stream| !left_out(stream)).collect()
        };
        match self.bug {
            Bug::NoHold | Bug::CopiesBeforeArrival => Some(Ok(Hold(0))),
            Bug::HoldsKnownStreamsAlone => {
                Some(inner.hold(&without(&|stream| Some(&stream) == others)))
            }
            Bug::IgnoresCaptures => Some(inner.hold(&without(&|stream| {
                self.sim.capture_status(stream).unwrap() != CaptureStatus::None
            }))),
            Bug::LetsGoBeforeMapping => Some(inner.hold(streams).map(|Hold(number)| {
                *self.hold.lock().unwrap() = Some(Hold(number));
                Hold(number)
            })),
            _ => None,
        }
    }

    fn lets_go(&self) -> bool {
        *self.held.lock().unwrap() = None;
        // The real one, which began late, or is over already.
        let hold = self.hold.lock().unwrap().take();
        let is_own = hold.is_some();
        hold.into_iter().for_each(|hold| self.sim.let_go(hold));
        !is_own && !matches!(self.bug, Bug::NoHold | Bug::CopiesBeforeArrival)
    }

    fn copy(&self, inner: &dyn Driver, to: u64, from: u64, bytes: u64) -> Option<Result<()>> {
        // Moves copy whole granules.
        let is_to_host = !bytes.is_multiple_of(VMM_2MIB.granule_bytes);
        match self.bug {
            Bug::NoCopy => Some(Ok(())),
            Bug::NoCopyToHost if is_to_host => Some(Ok(())),
            Bug::CopiesOverHost if is_to_host => {
                let page = to / VMM_2MIB.granule_bytes * VMM_2MIB.granule_bytes;
                let beside = if page < to { page } else { page + VMM_2MIB.granule_bytes - bytes };
                Some(inner.copy(beside, from, bytes))
            }
            _ => None,
        }
    }

    fn finish_copies(&self, inner: &dyn Driver) -> Option<Result<()>> {
        match self.bug {
            Bug::UnmapsBeforeCopiesEnd => Some(Ok(())),
            Bug::CopiesBeforeArrival => Some(inner.finish_copies().and_then(|()| {
                let streams = self.held.lock().unwrap().clone();
                let hold = inner.hold(&streams.unwrap_or_default())?;
                *self.hold.lock().unwrap() = Some(hold);
                Ok(())
            })),
            Bug::LetsGoBeforeMapping => {
                let done = inner.finish_copies();
                if let Some(hold) = self.hold.lock().unwrap().take() {
                    inner.let_go(hold);
                }
                Some(done)
            }
            _ => None,
        }
    }

    fn synchronize_device(&self) -> Option<Result<()>> {
        // It would break the capture, and be caught for that.
        (self.bug == Bug::IgnoresCaptures).then_some(Ok(()))
    }

    fn capture_status(&self) -> Option<Result<CaptureStatus>> {
        (self.bug == Bug::IgnoresCaptures).then_some(Ok(CaptureStatus::None))
    }

    fn set_access(&self, (address, bytes): (u64, u64)) -> Option<Result<()>> {
        let is_moving = self.held.lock().unwrap().is_some();
        let alone = || {
            let opened = self.sim.set_access_alone(address, bytes);
            opened.map_err(|code| DriverError::new(Call::SetAccess, code))
        };
        (self.bug == Bug::ForgetsPeers && is_moving).then(alone)
    }
}

/// A program at the end of its device.
struct Scene {
    program: Program,
    device: SimDevice,
    lane: Lane,
    /// A stream that the allocator is only told of.
    other: Stream,
    kept: Vec<Block>,
    /// What is to be had by moves alone.
    large_bytes: u64,
    alongside: Arc<Alongside>,
}

impl Scene {
    /// With what another thread does on the stream that the allocator is told of.
    fn new(bug: Bug, at: Option<Call>) -> Self {
        Self::of(bug, at, sparse, |_, kept| rest(kept))
    }

    /// Where pages have to share granules.
    fn of_meshes(bug: Bug, at: Option<Call>) -> Self {
        Self::of(bug, at, halves, |program, _| shared(program))
    }

    fn of(
        bug: Bug,
        at: Option<Call>,
        keep: fn(&Program, Lane) -> Vec<Block>,
        large_bytes: fn(&Program, &[Block]) -> u64,
    ) -> Self {
        let config = SimConfig { total_bytes: TOTAL, peers: vec![1], ..watched() };
        let device = SimDevice::new(config);
        let alongside = Arc::new(Alongside { at, ..Alongside::default() });
        let (sim, held, hold) = (device.clone(), Mutex::default(), Mutex::default());
        let buggy = Buggy { bug, sim, alongside: Arc::clone(&alongside), held, hold };
        let driver = Arc::new(Altered { inner: Arc::new(device.clone()), alteration: buggy });
        let options = VMM_2MIB.options().with_prefer(Prefer::Balanced);
        let program = Program::with_driver(Arc::new(device.clone()), driver, options);
        let other = device.create_stream();
        // The first of a device, which has the same handle on each.
        OTHER.store(other.0, Ordering::Relaxed);
        program
            .allocator
            .know_all_streams(|_, run| run(vec![Stream(OTHER.load(Ordering::Relaxed))]));
        let lane = program.lane();
        let kept = keep(&program, lane);
        let large_bytes = large_bytes(&program, &kept);
        let _ = alongside.stream.set(other);
        let _ = alongside.blocks.set(kept.iter().map(|block| block.address).collect());
        Self { program, device, lane, other, kept, large_bytes, alongside }
    }

    /// Asks for that, and says how many there were and what was found.
    fn moves(self) -> (u64, Vec<Violation>) {
        let asked = self.program.try_allocate(self.lane, self.large_bytes);
        let moved = moves(&self.program);
        let thread = self.alongside.thread.lock().unwrap().take();
        thread.into_iter().for_each(|thread| thread.join().unwrap());
        if let Ok(block) = asked {
            self.program.free(block);
        }
        self.kept.into_iter().for_each(|block| self.program.free(block));
        (moved, self.device.take_violations())
    }
}

/// The bug is caught as what it is, and the same run without it is not accused.
#[track_caller]
fn catches(bug: Bug, at: Option<Call>, prepare: fn(&Scene), is_kind: fn(&Violation) -> bool) {
    catches_in(Scene::new, bug, at, prepare, is_kind);
}

#[track_caller]
fn catches_in(
    scene: fn(Bug, Option<Call>) -> Scene,
    bug: Bug,
    at: Option<Call>,
    prepare: fn(&Scene),
    is_kind: fn(&Violation) -> bool,
) {
    for tried in [Bug::None, bug] {
        let scene = scene(tried, at);
        prepare(&scene);
        assert_eq!(scene.device.take_violations(), [], "before any move");
        let (moved, found) = scene.moves();
        if tried == Bug::None {
            assert!(moved > 0 || bug == Bug::IgnoresCaptures, "nothing moves: {bug:?}");
            assert_eq!(found, [], "an honest driver is accused: {bug:?}");
        } else {
            assert!(found.iter().any(is_kind), "{bug:?} is not caught, but {found:?}");
        }
    }
}

fn nothing(_: &Scene) {}

/// A kernel on the stream that the allocator is told of uses everything, and is complete.
fn is_used_by_other(scene: &Scene) {
    scene.kept.iter().for_each(|block| scene.device.check_use(block.address, scene.other));
}

const fn is_not_accessible(found: &Violation) -> bool {
    matches!(found, Violation::NotAccessible { .. })
}

const fn is_lost(found: &Violation) -> bool {
    matches!(found, Violation::LostBytes { .. })
}

const fn is_not_held(found: &Violation) -> bool {
    matches!(found, Violation::NotHeld { .. })
}

#[test]
fn a_move_without_a_hold_is_caught() {
    let is_gone = |found: &Violation| matches!(found, Violation::LiveMemoryGone { .. });
    catches(Bug::NoHold, None, nothing, is_gone);
    catches(Bug::NoHold, Some(Call::Map), nothing, is_not_accessible);
}

#[test]
fn a_hold_of_known_streams_alone_is_caught() {
    let bug = Bug::HoldsKnownStreamsAlone;
    // Whatever it does meanwhile: it might have.
    catches(bug, None, is_used_by_other, is_not_held);
    // A first kernel there, in each gap.
    catches(bug, Some(Call::Unmap), nothing, is_lost);
    catches(bug, Some(Call::Map), nothing, is_not_accessible);
    catches(bug, Some(Call::SetAccess), nothing, is_not_accessible);
}

#[test]
fn a_copy_before_streams_have_arrived_is_caught() {
    let is_early = |found: &Violation| matches!(found, Violation::CopyInFlight { .. });
    catches(Bug::CopiesBeforeArrival, Some(Call::Copy), nothing, is_early);
    catches(Bug::CopiesBeforeArrival, Some(Call::FinishCopies), nothing, is_lost);
}

#[test]
fn an_unmap_before_the_copy_is_complete_is_caught() {
    let is_early = |found: &Violation| matches!(found, Violation::UnmapInCopy { .. });
    catches(Bug::UnmapsBeforeCopiesEnd, None, nothing, is_early);
}

#[test]
fn streams_that_go_on_before_the_new_memory_is_there_are_caught() {
    let is_gone = |found: &Violation| matches!(found, Violation::LiveMemoryGone { .. });
    catches(Bug::LetsGoBeforeMapping, None, nothing, is_gone);
    catches(Bug::LetsGoBeforeMapping, Some(Call::Map), nothing, is_not_accessible);
}

#[test]
fn a_move_without_a_copy_is_caught() {
    catches(Bug::NoCopy, None, nothing, is_lost);
}

/// Nor do bytes get lost in a granule that two pages share: neither the guest's nor the host's.
#[test]
fn a_mesh_that_copies_nothing_or_to_the_wrong_place_is_caught() {
    for bug in [Bug::NoCopyToHost, Bug::CopiesOverHost] {
        catches_in(Scene::of_meshes, bug, None, nothing, is_lost);
    }
}

#[test]
fn a_mesh_before_streams_stand_still_or_after_they_go_on_is_caught() {
    let is_gone = |found: &Violation| matches!(found, Violation::LiveMemoryGone { .. });
    for bug in [Bug::NoHold, Bug::LetsGoBeforeMapping] {
        catches_in(Scene::of_meshes, bug, None, nothing, is_gone);
    }
}

#[test]
fn a_move_while_a_stream_is_captured_is_caught() {
    let capture = |scene: &Scene| {
        let captured = scene.program.lane();
        scene.device.begin_capture(captured.stream, CaptureMode::Relaxed).unwrap();
        scene.kept.iter().for_each(|block| scene.program.use_on(block, captured));
    };
    catches(Bug::IgnoresCaptures, None, capture, is_not_held);
}

/// By hand memory moves although peers were let in: it is open to them afterwards, as before.
#[test]
fn a_move_that_forgets_peers_is_caught() {
    for bug in [Bug::None, Bug::ForgetsPeers] {
        let Scene { program, device, kept, .. } = Scene::new(bug, None);
        program.allocator.enable_peer_access(1).unwrap();
        program.allocator.trim().unwrap();
        program.allocator.compact(Duration::from_secs(1)).unwrap();
        assert!(moves(&program) > 0);
        kept.iter().for_each(|block| device.check_peer_use(1, block.address, block.bytes));
        let found = device.take_violations();
        let is_forgotten = |found: &Violation| matches!(found, Violation::NotOpenToPeer { .. });
        // Each kept block by the use, and its granules as soon as streams go on.
        let (forgotten, expected) = (found.iter().filter(|found| is_forgotten(found)), kept.len());
        match bug {
            Bug::None => assert_eq!(found, []),
            _ => assert!(forgotten.count() > expected, "{found:?}"),
        }
    }
}

/// What others know by its address stays where the program says so; and where it does not, that is
/// the program's bug, and shows.
#[test]
fn a_move_of_what_is_registered_is_caught() {
    for is_pinned in [true, false] {
        let scene = Scene::new(Bug::None, None);
        for block in &scene.kept {
            scene.device.register(block.address, block.bytes);
            if is_pinned {
                scene.program.allocator.pin_mapping(block.address).unwrap();
            }
        }
        let asked = scene.program.try_allocate(scene.lane, rest(&scene.kept));
        assert_eq!(asked.is_err(), is_pinned);
        let found = scene.device.take_violations();
        let is_gone = |found: &Violation| matches!(found, Violation::RegisteredMemoryGone { .. });
        assert_eq!(found.iter().any(is_gone), !is_pinned, "{found:?}");
        assert_eq!(moves(&scene.program) > 0, !is_pinned);
        drop(asked.map(|block| scene.program.free(block)));
    }
}
