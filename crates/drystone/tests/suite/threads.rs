//! Threads: four of them share one allocator, on streams of their own and on one they have in
//! common, while others trim and change the limit. Covers B16, B18, B19, B20, B24.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use drystone::driver::{Call, Driver};
use drystone::{CrossStream, Imported, Options};
use drystone_sim::{Rng, SimConfig, SimDevice};

use crate::altered::{Alteration, Altered};
use crate::program::{Block, Program};
use crate::setup::{SOURCES, Setup};
use crate::sim::{MIB, watched};

const THREADS: u64 = 4;

fn device(total_bytes: u64) -> SimDevice {
    SimDevice::new(SimConfig {
        total_bytes,
        event_latency_ns: 5_000,
        clock_jitter_ns: 2_000,
        check_kernel_ns: 20_000,
        ..watched()
    })
}

/// Every thread keeps a few blocks, uses them on the common stream, and frees at random.
#[test]
fn b16_b18_b20_everything_at_once() {
    for (seed, setup) in SOURCES.iter().enumerate() {
        let sim = device(512 * MIB);
        let program = Program::new(Arc::new(sim), setup.options());
        let common = program.default_lane();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let program = &program;
                    scope.spawn(move || {
                        let mut rng = Rng::new(seed as u64 * THREADS + thread);
                        let own = program.lane();
                        let mut live: Vec<Block> = Vec::new();
                        for _ in 0..6000 {
                            let lane = if rng.chance(30) { common } else { own };
                            if live.len() < 6 {
                                let most = if rng.chance(50) { MIB } else { 20 * MIB };
                                let bytes = 1 + rng.below(most);
                                live.extend(program.try_allocate(lane, bytes));
                            } else {
                                let at = rng.below(live.len() as u64) as usize;
                                let block = live.swap_remove(at);
                                if rng.chance(40) {
                                    program.use_on(&block, common);
                                }
                                program.free(block);
                            }
                        }
                        live.into_iter().for_each(|block| program.free(block));
                        program.allocator.retire_stream(own.id).unwrap();
                    })
                })
                .collect();
            let meddler = scope.spawn(|| {
                let mut rng = Rng::new(99);
                while !is_over.load(Ordering::Relaxed) {
                    match rng.below(5) {
                        0 => drop(program.allocator.trim().unwrap()),
                        1 => program.allocator.set_limit((64 + rng.below(448)) * MIB),
                        2 => program.allocator.set_limit(u64::MAX),
                        3 => drop(program.allocator.snapshot()),
                        _ => drop(program.allocator.trim_passed().unwrap()),
                    }
                    thread::yield_now();
                }
            });
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
            meddler.join().unwrap();
        });
        program.allocator.set_limit(u64::MAX);
        let whole = program.allocate(common, 512 * MIB);
        program.free(whole);
        program.end();
    }
}

/// B19: the check of the limit and the growth are one step. Threads that start together never take
/// more than it allows, whoever wins.
#[test]
fn b19_the_limit_holds_for_all_threads_together() {
    for setup in &SOURCES {
        let sim = device(512 * MIB);
        let limit_bytes = 96 * MIB;
        let options = setup.options().with_limit_bytes(limit_bytes);
        let program = Program::new(Arc::new(sim.clone()), options);
        let barrier = Barrier::new(THREADS as usize);
        let served = AtomicU64::new(0);
        for _ in 0..40 {
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let lane = program.lane();
                        barrier.wait();
                        let block = program.try_allocate(lane, 48 * MIB);
                        served.fetch_add(u64::from(block.is_ok()), Ordering::Relaxed);
                        barrier.wait();
                        block.into_iter().for_each(|block| program.free(block));
                        program.allocator.retire_stream(lane.id).unwrap();
                        program.device.destroy_stream(lane.stream);
                    });
                }
            });
            program.check();
        }
        assert!(sim.peak_physical_bytes() <= limit_bytes);
        assert!(served.load(Ordering::Relaxed) >= 40, "{served:?} served");
        program.end();
    }
}

/// What threads hold together always fits: none may be told that memory is out because another one
/// is busy giving it back or getting it.
#[test]
fn memory_that_is_on_its_way_is_not_missing() {
    for setup in &SOURCES {
        let refused = fitting_requests(setup);
        assert_eq!(refused, 0, "{:?}", setup.backend);
    }
}

/// Lets other threads go first in every driver call, which widens every window there is.
struct Yielding;

impl Alteration for Yielding {
    fn before(&self, _: Call) {
        thread::yield_now();
    }
}

fn fitting_requests(setup: &Setup) -> u64 {
    let sim = device(THREADS * 64 * MIB);
    let options = setup.options().with_cross_stream(CrossStream::Never);
    let inner: Arc<dyn Driver> = Arc::new(sim.clone());
    let driver = Arc::new(Altered { inner, alteration: Yielding });
    let program = Program::with_driver(Arc::new(sim.clone()), driver, options);
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (program, refused) = (&program, &refused);
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                // Memory cached for one stream serves the other only by way of the device.
                let lanes = [program.lane(), program.lane()];
                for _ in 0..200 {
                    match program.try_allocate(lanes[rng.below(2) as usize], 64 * MIB) {
                        Ok(block) => program.free(block),
                        Err(_) => drop(refused.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
    });
    let gives_back = [Call::Release, Call::Free, Call::TrimMemoryPool];
    let moves: u64 = gives_back.map(|call| sim.calls_of(call)).iter().sum();
    assert!(moves > 0, "nothing had to move: the test shows nothing");
    program.end();
    refused.into_inner()
}

/// Closes an import by another thread while memory is opened to a peer.
#[derive(Default)]
struct ClosesMeanwhile {
    imported: Mutex<Option<Imported>>,
    is_letting_in: AtomicBool,
    closing: Mutex<Option<JoinHandle<()>>>,
}

impl Alteration for Arc<ClosesMeanwhile> {
    fn before(&self, call: Call) {
        if call == Call::SetAccess && self.is_letting_in.load(Ordering::Relaxed) {
            if let Some(imported) = self.imported.lock().unwrap().take() {
                *self.closing.lock().unwrap() = Some(thread::spawn(move || drop(imported)));
            }
            // Long enough for that to end, if nobody keeps it.
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn an_import_that_is_closed_while_a_peer_is_let_in_is_open_or_gone() {
    let closes = Arc::new(ClosesMeanwhile::default());
    let sim = SimDevice::new(SimConfig { peers: vec![1], ..watched() });
    let inner = Arc::new(sim.clone()) as Arc<dyn Driver>;
    let driver = Arc::new(Altered { inner, alteration: Arc::clone(&closes) });
    let program = Program::with_driver(Arc::new(sim), driver, Options::default());
    let block = program.allocate(program.default_lane(), 4 * MIB);
    let exported = program.allocator.export(block.address).unwrap();
    let handles = exported.handles.iter().map(|one| (&*one.descriptor, one.bytes));
    let imported = program.allocator.import(&handles.collect::<Vec<_>>()).unwrap();
    *closes.imported.lock().unwrap() = Some(imported);
    closes.is_letting_in.store(true, Ordering::Relaxed);
    program.allocator.enable_peer_access(1).unwrap();
    program.check();
    drop(exported);
    closes.closing.lock().unwrap().take().unwrap().join().unwrap();
    program.free(block);
    program.end();
}
