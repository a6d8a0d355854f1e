//! Random programs that use all there is at once: blocks, memory that grows in place, exports,
//! imports and pins, streams and pools that go, captures, trims. One thread on a device whose calls
//! fail at random, and every invariant holds after each step; or several, which fail in nothing but
//! memory. At the end everything can be given back.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use drystone::driver::{Call, CaptureMode, ErrorCode, Stream};
use drystone::{Growable, Imported, MappingChange, Options, PoolId, Prefer};
use drystone_sim::{FaultMode, FaultPlan, Rng, SimConfig, SimDevice};

use crate::device::TestDevice;
use crate::program::{Block, Lane, Program};
use crate::sim::{MIB, watched};

const GRANULE: u64 = 2 * MIB;

/// What a driver may answer that is not the end of it.
const CODES: [ErrorCode; 4] = [
    ErrorCode::OutOfMemory,
    ErrorCode::InvalidValue,
    ErrorCode::InvalidHandle,
    ErrorCode::NotSupported,
];

struct Cache {
    growable: Growable,
    lane: Lane,
}

/// A thread of a program.
struct Chaos<'a> {
    sim: &'a SimDevice,
    program: &'a Program,
    /// There is no other.
    is_alone: bool,
    rng: Rng,
    lanes: Vec<Lane>,
    captured: Option<Lane>,
    pools: Vec<PoolId>,
    blocks: Vec<Block>,
    caches: Vec<Cache>,
    imports: Vec<Imported>,
    pins: Vec<u64>,
}

fn make(seed: u64, rng: &mut Rng) -> (SimDevice, Program) {
    let prefers = [Prefer::Balanced, Prefer::Memory, Prefer::Speed];
    let options = Options::default().with_prefer(prefers[rng.below(3) as usize]);
    let sim = SimDevice::new(SimConfig {
        total_bytes: 256 * MIB + 64 * MIB * rng.below(4),
        process_limit_bytes: if rng.chance(20) { 200 * MIB } else { u64::MAX },
        event_latency_ns: 10_000 * rng.below(3),
        check_kernel_ns: 40_000 * rng.below(2),
        clock_jitter_ns: 5_000 * rng.below(2),
        address_space_bytes: if rng.chance(30) { 2 << 30 } else { 1 << 46 },
        mapping_limit: if rng.chance(30) { 160 } else { 1 << 20 },
        seed,
        ..watched()
    });
    (sim.clone(), Program::new(Arc::new(sim), options))
}

impl<'a> Chaos<'a> {
    fn new(sim: &'a SimDevice, program: &'a Program, mut rng: Rng, is_alone: bool) -> Self {
        let mut lanes = vec![program.default_lane()];
        lanes.extend((0..1 + rng.below(3)).map(|_| program.lane()));
        Self {
            sim,
            program,
            is_alone,
            rng,
            lanes,
            captured: None,
            pools: vec![PoolId::DEFAULT],
            blocks: Vec::new(),
            caches: Vec::new(),
            imports: Vec::new(),
            pins: Vec::new(),
        }
    }

    fn below(&mut self, most: usize) -> usize {
        self.rng.below(most as u64) as usize
    }

    fn any_lane(&mut self) -> Lane {
        let at = self.below(self.lanes.len());
        self.lanes[at]
    }

    /// From now on some calls fail, or none.
    fn change_luck(&mut self) {
        self.sim.clear_faults();
        if self.rng.chance(50) {
            return;
        }
        for _ in 0..1 + self.rng.below(3) {
            let call = Call::ALL[self.rng.below(Call::ALL.len() as u64) as usize];
            let is_forever = self.rng.chance(30);
            let mode = if is_forever { FaultMode::Forever } else { FaultMode::Once };
            let code = CODES[self.rng.below(CODES.len() as u64) as usize];
            // A stream that is asked for and not found is another's, or dead.
            let code = if call == Call::CaptureStatus { ErrorCode::InvalidValue } else { code };
            let nth = 1 + self.rng.below(12);
            self.sim.install_fault(FaultPlan { call, nth, mode, code });
        }
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..30 => self.allocate(),
            30..50 => self.free(),
            50..55 => self.use_block(),
            55..70 => self.resize(),
            70..74 => self.replace_cache(),
            74..78 => self.share(),
            78..81 => drop(self.imports.pop()),
            81..85 => self.pin(),
            85..88 => drop(self.program.allocator.trim()),
            88..90 => drop(self.program.allocator.trim_passed()),
            90..92 => self.replace_lane(),
            92..94 => self.replace_pool(),
            94..97 if self.is_alone => self.capture(),
            97..98 => self.commit_rest(),
            _ => self.program.device.pass(1 + self.rng.below(300)),
        }
    }

    fn allocate(&mut self) {
        let lane = self.any_lane();
        let at = self.below(self.pools.len());
        let sizes = [4096, 3 * MIB, 40 * MIB, 120 * MIB];
        let most = sizes[self.below(4)];
        let bytes = 1 + self.rng.below(most);
        self.blocks.extend(self.program.try_allocate_in(self.pools[at], lane, bytes).ok());
    }

    fn take_block(&mut self) -> Option<Block> {
        let at = self.below(self.blocks.len().max(1));
        (at < self.blocks.len()).then(|| self.blocks.swap_remove(at))
    }

    fn free(&mut self) {
        if let Some(block) = self.take_block() {
            self.program.try_free(&block).unwrap();
        }
    }

    fn use_block(&mut self) {
        let lane = self.any_lane();
        if let Some(block) = self.take_block() {
            self.program.use_on(&block, lane);
            self.blocks.push(block);
        }
        if !self.caches.is_empty() {
            let at = self.below(self.caches.len());
            let growable = &self.caches[at].growable;
            for granule in 0..growable.backed_bytes() / GRANULE {
                self.sim.used(growable.address() + granule * GRANULE, lane.stream);
            }
            growable.record_stream(lane.id).unwrap();
        }
    }

    fn resize(&mut self) {
        if self.caches.is_empty() {
            return;
        }
        let at = self.below(self.caches.len());
        let to = match self.rng.chance(60) {
            true => self.rng.below(120 * MIB),
            false => self.rng.below(self.caches[at].growable.bytes() + 1),
        };
        self.resize_to(at, to);
    }

    fn resize_to(&mut self, at: usize, bytes: u64) {
        let cache = &mut self.caches[at];
        let (address, before) = (cache.growable.address(), cache.growable.bytes());
        let granules = cache.growable.backed_bytes() / GRANULE;
        if bytes < before {
            for granule in bytes.div_ceil(GRANULE)..granules {
                self.sim.taken_back(address + granule * GRANULE);
            }
            cache.growable.shrink_to(bytes).unwrap();
        } else if cache.growable.grow_to(bytes).is_err() {
            assert_eq!(cache.growable.bytes(), before);
        }
        self.tell_grown(at, granules);
    }

    fn tell_grown(&self, at: usize, granules: u64) {
        let Cache { growable, lane } = &self.caches[at];
        for granule in granules..growable.backed_bytes() / GRANULE {
            self.sim.handed_out(growable.address() + granule * GRANULE, GRANULE, lane.stream);
        }
    }

    fn commit_rest(&mut self) {
        if self.caches.is_empty() {
            return;
        }
        let at = self.below(self.caches.len());
        let granules = self.caches[at].growable.backed_bytes() / GRANULE;
        let margin = 1 + self.rng.below(200 * MIB);
        let _ = self.caches[at].growable.commit_rest(margin);
        self.tell_grown(at, granules);
    }

    fn replace_cache(&mut self) {
        if self.caches.len() == 3 {
            let at = self.below(3);
            self.resize_to(at, 0);
            drop(self.caches.swap_remove(at));
        } else {
            let lane = self.any_lane();
            let room = 1 + self.rng.below(200 * MIB);
            let growable = self.program.allocator.reserve(lane.id, room);
            self.caches.extend(growable.ok().map(|growable| Cache { growable, lane }));
        }
    }

    fn share(&mut self) {
        let Some(block) = self.take_block() else { return };
        let allocator = &self.program.allocator;
        let cache = self.caches.iter().find(|cache| cache.growable.bytes() > 0);
        let address = match cache.filter(|_| self.rng.chance(40)) {
            Some(cache) => cache.growable.address(),
            None => block.address,
        };
        let imported = allocator.export(address).and_then(|exported| {
            let handles = exported.handles.iter().map(|one| (&*one.descriptor, one.bytes));
            allocator.import(&handles.collect::<Vec<_>>())
        });
        self.imports.extend(imported.ok());
        self.blocks.push(block);
    }

    fn pin(&mut self) {
        if self.pins.len() == 3 {
            let address = self.pins.remove(0);
            assert!(self.program.allocator.unpin_mapping(address).is_ok());
        } else if let Some(block) = self.take_block() {
            let address = block.address;
            if self.program.allocator.pin_mapping(address).is_ok() {
                self.pins.push(address);
            }
            self.blocks.push(block);
        }
    }

    fn replace_lane(&mut self) {
        let at = self.below(self.lanes.len());
        let lane = self.lanes[at];
        let is_cached = self.caches.iter().any(|cache| cache.lane.id == lane.id);
        let is_captured = self.captured.is_some_and(|one| one.id == lane.id);
        if lane.stream == Stream::DEFAULT || is_captured || (is_cached && self.rng.chance(70)) {
            return;
        }
        self.program.allocator.retire_stream(lane.id).unwrap();
        self.sim.clear_faults();
        TestDevice::destroy_stream(self.sim, lane.stream);
        self.lanes[at] = self.program.lane();
    }

    fn replace_pool(&mut self) {
        match self.pools.len() {
            3 => self.program.allocator.release_pool(self.pools.pop().unwrap()).unwrap(),
            _ => self.pools.push(self.program.allocator.add_pool()),
        }
    }

    fn capture(&mut self) {
        if let Some(lane) = self.captured.take() {
            assert!(TestDevice::end_capture(self.sim, lane.stream), "the capture is broken");
            return;
        }
        let lane = self.any_lane();
        if lane.stream != Stream::DEFAULT {
            let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
            let mode = modes[self.below(3)];
            TestDevice::begin_capture(self.sim, lane.stream, mode);
            self.captured = Some(lane);
        }
    }

    fn end(mut self) {
        self.sim.clear_faults();
        if self.captured.is_some() {
            self.capture();
        }
        self.imports.clear();
        for at in 0..self.caches.len() {
            self.resize_to(at, 0);
        }
        self.caches.clear();
        while !self.blocks.is_empty() {
            self.free();
        }
        for address in self.pins.drain(..) {
            self.program.allocator.unpin_mapping(address).unwrap();
        }
        for pool in self.pools.drain(1..) {
            self.program.allocator.release_pool(pool).unwrap();
        }
    }
}

/// All of it is given back.
fn end(program: Program) {
    program.allocator.trim().unwrap();
    let stats = program.allocator.stats();
    assert_eq!((stats.all.reserved_bytes.current, stats.quarantined_bytes), (0, 0));
    assert_eq!((stats.all.allocated_bytes.current, stats.all.active_bytes.current), (0, 0));
    program.end();
}

fn run(seed: u64) {
    let mut rng = Rng::new(seed);
    let (sim, program) = make(seed, &mut rng);
    let mut chaos = Chaos::new(&sim, &program, rng, true);
    for step in 0..300 {
        if step % 7 == 0 {
            chaos.change_luck();
        }
        chaos.step();
        program.check();
    }
    chaos.end();
    end(program);
}

fn run_threads(seed: u64) {
    let mut rng = Rng::new(seed);
    let (sim, program) = make(seed, &mut rng);
    let told = Arc::new(AtomicU64::new(0));
    let telling = Arc::clone(&told);
    let tell = move |change: &MappingChange| {
        telling.fetch_add(change.bytes, Relaxed);
    };
    program.allocator.on_remap(Arc::new(tell)).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            let mut chaos = Chaos::new(&sim, &program, rng.split(), false);
            scope.spawn(move || {
                (0..300).for_each(|_| chaos.step());
                chaos.end();
            });
        }
    });
    program.check();
    assert!(told.load(Relaxed) > 0);
    end(program);
}

fn seeds(of: u64, run: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().map(|text: String| text.parse().unwrap());
    let seeds = match number("DRYSTONE_SEED") {
        Some(seed) => seed..seed + 1,
        // A seed takes as long as fifty of `seeds`.
        None => 0..number("DRYSTONE_SEEDS").map_or(of, |seeds| seeds / 50),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("seed {seed}: DRYSTONE_SEED={seed} runs it alone");
            resume_unwind(panic);
        }
    }
}

#[test]
fn whatever_fails_nothing_is_lost_and_nothing_is_given_twice() {
    seeds(60, run);
}

#[test]
fn threads_that_do_everything_at_once_leave_nothing() {
    seeds(30, run_threads);
}
