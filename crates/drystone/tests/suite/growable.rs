//! Memory that grows in place: its address stays, nothing is copied, physical memory is behind the
//! front alone and comes from what is free; what is given up serves others once its last use is
//! over. The oracle watches each granule as a block of its own.

use std::sync::Arc;

use drystone::driver::{Call, CaptureMode, ErrorCode};
use drystone::{
    AllocateError, Backend, BuildError, Cause, Growable, Options, Prefer, RequestError,
    ReserveError,
};
use drystone_sim::{FaultMode, FaultPlan, Rng, SimConfig, SimDevice};

use crate::device::TestDevice;
use crate::program::{Block, Lane, Program};
use crate::sim::{GIB, MIB, watched};

const GRANULE: u64 = 2 * MIB;

fn program_on(config: SimConfig, options: Options) -> (SimDevice, Program) {
    let sim = SimDevice::new(config);
    (sim.clone(), Program::new(Arc::new(sim), options))
}

fn program() -> (SimDevice, Program) {
    program_on(watched(), Options::default())
}

/// A growable whose granules the oracle knows.
struct Cache<'a> {
    program: &'a Program,
    lane: Lane,
    growable: Growable,
}

impl<'a> Cache<'a> {
    fn new(program: &'a Program, lane: Lane, max_bytes: u64) -> Self {
        let growable = program.allocator.reserve(lane.id, max_bytes).unwrap();
        Self { program, lane, growable }
    }

    fn granules(&self) -> u64 {
        self.growable.backed_bytes() / GRANULE
    }

    fn try_grow(&mut self, bytes: u64) -> Result<(), AllocateError> {
        let (address, before) = (self.growable.address(), self.granules());
        let grown = self.growable.grow_to(bytes);
        assert_eq!(self.growable.address(), address);
        for granule in before..self.granules() {
            let at = address + granule * GRANULE;
            self.program.device.handed_out(at, GRANULE, self.lane.stream);
        }
        grown
    }

    #[track_caller]
    fn grow(&mut self, bytes: u64) {
        self.try_grow(bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    fn shrink(&mut self, bytes: u64) {
        let kept = bytes.div_ceil(GRANULE);
        for granule in kept..self.granules() {
            self.program.device.taken_back(self.growable.address() + granule * GRANULE);
        }
        self.growable.shrink_to(bytes).unwrap();
    }

    fn use_on(&self, lane: Lane) {
        for granule in 0..self.granules() {
            self.program.device.used(self.growable.address() + granule * GRANULE, lane.stream);
        }
        self.growable.record_stream(lane.id).unwrap();
    }

    fn end(mut self) {
        self.shrink(0);
    }
}

#[test]
fn it_grows_in_place_by_one_create_and_map_a_handle_and_one_access_a_range() {
    let (sim, program) =
        program_on(SimConfig { total_bytes: 80 * GIB, ..watched() }, Options::default());
    let lane = program.lane();
    let mut cache = Cache::new(&program, lane, 64 * GIB);
    let before = sim.calls();
    for gibibytes in 1..=64 {
        cache.grow(gibibytes * GIB);
        assert_eq!(program.reserved(), gibibytes * GIB);
    }
    let [creates, maps, accesses] =
        [Call::Create, Call::Map, Call::SetAccess].map(|call| sim.calls_of(call));
    assert_eq!((creates, accesses, sim.calls() - before), (maps, 64, creates + maps + accesses));
    // Handles of up to a 128th of what is left.
    assert!(creates <= 64 * 8, "{creates}");
    let all = program.allocator.stats().all;
    assert_eq!((all.allocations.current, all.allocated_bytes.current), (1, 64 * GIB));
    program.check();
    cache.end();
    program.end();
}

#[test]
fn what_is_free_is_taken_before_anything_is_created() {
    let (sim, program) = program();
    let lane = program.default_lane();
    let (kept, freed) = (program.allocate(lane, 100 * MIB), program.allocate(lane, 500 * MIB));
    program.free(freed);
    let (held, created) = (program.reserved(), sim.calls_of(Call::Create));
    let mut cache = Cache::new(&program, lane, GIB);
    cache.grow(290 * MIB);
    assert_eq!((program.reserved(), sim.calls_of(Call::Create)), (held, created));
    // Also where the last handle reaches beyond: its rest serves the next growth.
    let calls = sim.calls();
    cache.grow(292 * MIB);
    assert_eq!((program.reserved(), sim.calls()), (held, calls));
    cache.grow(900 * MIB);
    // What is kept stands in whole handles of 16 MiB.
    assert_eq!(program.reserved(), (112 + 900) * MIB);
    program.check();
    cache.end();
    program.free(kept);
    program.end();
}

#[test]
fn what_is_given_up_serves_its_next_growth_without_a_call_and_others_before_they_create() {
    let (sim, program) = program();
    let lane = program.default_lane();
    let mut cache = Cache::new(&program, lane, GIB);
    cache.grow(512 * MIB);
    cache.shrink(3 * MIB);
    assert_eq!(program.allocator.stats().all.allocated_bytes.current, 4 * MIB);
    let calls = sim.calls();
    cache.grow(512 * MIB - 5);
    assert_eq!(sim.calls(), calls);
    cache.shrink(0);
    assert!(program.allocator.budget().unwrap().would_fit(4 * GIB));
    let (held, created) = (program.reserved(), sim.calls_of(Call::Create));
    let block = program.allocate(lane, 512 * MIB);
    assert_eq!((program.reserved(), sim.calls_of(Call::Create)), (held, created));
    // Others have it: it grows elsewhere, where it was.
    cache.grow(64 * MIB);
    assert_eq!(program.reserved(), held + 64 * MIB);
    cache.shrink(0);
    program.free(block);
    assert_eq!(program.allocator.trim(), Ok(576 * MIB));
    cache.grow(32 * MIB);
    program.check();
    cache.end();
    program.end();
}

#[test]
fn uses_of_other_streams_are_waited_for() {
    let config = SimConfig { event_latency_ns: 20_000, check_kernel_ns: 50_000, ..watched() };
    let (sim, program) = program_on(config, Options::default());
    let (lane, other) = (program.lane(), program.lane());
    let mut cache = Cache::new(&program, lane, GIB);
    cache.grow(64 * MIB);
    cache.use_on(other);
    sim.work(other.stream, 5000);
    cache.shrink(20 * MIB);
    // Still used: neither a trim that does not wait nor another request takes it.
    assert_eq!(program.allocator.trim_passed(), Ok(0));
    let block = program.allocate(lane, 40 * MIB);
    let waited = sim.host_waited_ns();
    cache.grow(64 * MIB);
    assert!(sim.host_waited_ns() > waited, "grown into memory that is used");
    program.check();
    program.free(block);
    cache.end();
    program.end();
}

#[test]
fn it_grows_in_a_capture_and_where_others_still_use_it_says_so() {
    let (sim, program) =
        program_on(SimConfig { event_latency_ns: 10_000, ..watched() }, Options::default());
    let (lane, other) = (program.lane(), program.lane());
    let cached = program.allocate(other, 256 * MIB);
    program.free(cached);
    let mut cache = Cache::new(&program, lane, GIB);
    cache.grow(10 * MIB);
    cache.use_on(other);
    sim.work(other.stream, 5000);
    program.device.begin_capture(lane.stream, CaptureMode::Global);
    cache.grow(100 * MIB);
    cache.shrink(4 * MIB);
    let address = cache.growable.address() + 4 * MIB;
    assert_eq!(cache.try_grow(20 * MIB), Err(RequestError::StillUsed { address }.into()));
    assert!(program.device.end_capture(lane.stream), "the capture is broken");
    program.check();
    cache.grow(20 * MIB);
    program.check();
    cache.end();
    program.end();
}

#[test]
fn its_room_is_the_programs_to_choose() {
    let (_, program) = program();
    let lane = program.default_lane();
    // More than the device has; addresses cost nothing.
    let mut cache = Cache::new(&program, lane, 40 * GIB + 1);
    assert_eq!(cache.growable.room_bytes(), 40 * GIB + GRANULE);
    assert!(matches!(cache.try_grow(5 * GIB), Err(AllocateError::OutOfMemory(_))));
    assert_eq!((cache.growable.bytes(), program.reserved()), (0, 0));
    let room_bytes = 40 * GIB + GRANULE;
    let beyond = RequestError::Room { bytes: 41 * GIB, room_bytes };
    assert_eq!(cache.try_grow(41 * GIB), Err(beyond.into()));
    // An empty one keeps its address through a trim.
    program.allocator.trim().unwrap();
    cache.grow(4 * GIB);
    cache.end();
    assert!(program.allocator.reserve(lane.id, u64::MAX).is_err());
    program.allocator.retire_stream(lane.id).unwrap();
    assert!(program.allocator.reserve(lane.id, GIB).is_err(), "on a stream that is gone");
    program.end();
    let options = Options::default().with_backend(Backend::Async);
    let (_, program) = program_on(watched(), options);
    let error = program.allocator.reserve(program.default_lane().id, GIB).unwrap_err();
    assert!(matches!(error, ReserveError::Build(BuildError::OtherBackend { .. })), "{error}");
    program.end();
    let config = SimConfig { has_virtual_memory: false, ..watched() };
    let (_, program) = program_on(config, Options::default());
    let error = program.allocator.reserve(program.default_lane().id, GIB).unwrap_err();
    assert!(matches!(error, ReserveError::Build(BuildError::NoVirtualMemory { .. })), "{error}");
    program.end();
}

#[test]
fn the_limit_counts_it_and_recovery_makes_room_for_it() {
    let options = Options::default().with_limit_bytes(256 * MIB);
    let (_, program) = program_on(watched(), options);
    let (lane, other) = (program.lane(), program.lane());
    let cached = program.allocate(other, 200 * MIB);
    program.use_on(&cached, lane);
    program.device.work(lane.stream, 1000);
    program.free(cached);
    let mut cache = Cache::new(&program, lane, GIB);
    cache.grow(256 * MIB);
    let refused = cache.try_grow(258 * MIB);
    assert!(matches!(&refused, Err(AllocateError::OutOfMemory(e)) if e.is_at_limit), "{refused:?}");
    cache.shrink(128 * MIB);
    let block = program.allocate(other, 128 * MIB);
    program.free(block);
    program.check();
    cache.end();
    program.end();
}

#[test]
fn memory_that_somebody_freed_by_its_address_is_told_of() {
    let (_, program) = program();
    let lane = program.default_lane();
    for bytes in [8 * MIB, 30 * MIB] {
        let mut cache = program.allocator.reserve(lane.id, GIB).unwrap();
        cache.grow_to(20 * MIB).unwrap();
        let address = cache.address();
        program.allocator.free(address).unwrap();
        assert_eq!(cache.grow_to(20 * MIB + bytes), Err(RequestError::Freed { address }.into()));
        assert!(cache.shrink_to(MIB).is_err() && cache.bytes() == 20 * MIB);
        program.check();
    }
    program.end();
}

/// What a shrink leaves in part of a handle, the block before it keeps, and no graph's pool.
#[test]
fn what_a_handle_keeps_is_blamed_on_the_block_in_it() {
    let (_, program) = program();
    let lane = program.default_lane();
    let mut cache = Cache::new(&program, lane, GIB);
    cache.grow(32 * MIB);
    cache.shrink(2 * MIB);
    let wanted = 4 * GIB - 12 * MIB;
    let mut other = Cache::new(&program, lane, wanted);
    for refused in [program.try_allocate(lane, wanted).err(), other.try_grow(wanted).err()] {
        let Some(AllocateError::OutOfMemory(refused)) = refused else { panic!("{refused:?}") };
        assert_eq!(refused.cause(), Cause::Pieces(30 * MIB), "{refused}");
        assert_eq!((refused.private_free_bytes, refused.own_free_bytes), (0, 0));
    }
    cache.end();
    other.end();
    program.end();
}

/// One step of a model over so many tokens: layers of activations that come and go.
fn step(program: &Program, lane: Lane, tokens: u64) {
    let hidden = tokens * 8192 * 2;
    let residual = program.allocate(lane, hidden);
    for _ in 0..4 {
        let normed = program.allocate(lane, hidden);
        let mixed = program.allocate(lane, hidden * 3 / 2);
        let attended = program.allocate(lane, hidden);
        let scales = program.allocate(lane, tokens * 4);
        [normed, mixed, attended].into_iter().for_each(|block| program.free(block));
        let gates = [(); 2].map(|()| program.allocate(lane, hidden * 7 / 2));
        [scales].into_iter().chain(gates).for_each(|block| program.free(block));
    }
    let logits = program.allocate(lane, tokens.min(64) * 128_256 * 4);
    [residual, logits].into_iter().for_each(|block| program.free(block));
}

/// A server: weights, staging for the loader, graphs with memory of their own, and the largest step
/// made once; then one cache has all the rest, and steps of any size are served.
#[test]
fn a_cache_gets_what_is_left_and_the_program_never_runs_out() {
    for prefer in [Prefer::Balanced, Prefer::Memory, Prefer::Speed] {
        let total_bytes = 80 * GIB;
        let options = Options::default().with_prefer(prefer);
        let (sim, program) = program_on(SimConfig { total_bytes, ..watched() }, options);
        let (lane, copies) = (program.lane(), program.lane());
        let mut rng = Rng::new(11);
        let mut kept: Vec<Block> = Vec::new();
        for _ in 0..32 {
            let staging = program.allocate(copies, 700 * MIB);
            kept.push(program.allocate(lane, 400 * MIB + rng.below(MIB)));
            program.free(staging);
        }
        let graphs = program.allocator.add_pool();
        kept.push(program.try_allocate_in(graphs, lane, 320 * MIB).unwrap());
        let in_use = || program.allocator.stats().all.allocated_bytes;
        program.allocator.reset_peaks();
        let before = in_use().current;
        step(&program, lane, 4096);
        let scratch = in_use().peak - before;
        let mut cache = program.allocator.reserve(lane.id, total_bytes).unwrap();
        // Pieces of granules, and small blocks.
        let bytes = cache.commit_rest(scratch + 48 * MIB).unwrap();
        assert_eq!(bytes, cache.bytes());
        for _ in 0..300 {
            step(&program, lane, 1 + rng.below(4096));
        }
        let calls = sim.calls();
        step(&program, lane, 4096);
        let unused = total_bytes - in_use().peak;
        assert!(unused * 1000 <= total_bytes, "{unused} bytes of {total_bytes}, {prefer:?}");
        eprintln!("{prefer:?}: cache {bytes}, unused {unused}, calls {}", sim.calls() - calls);
        program.check();
        drop(cache);
        kept.into_iter().for_each(|block| program.free(block));
        program.allocator.release_pool(graphs).unwrap();
        program.end();
    }
}

/// Every call fails at every turn; what was before the front stays, and the same growth succeeds
/// once it may.
#[test]
fn p4_a_growth_that_fails_changes_nothing() {
    let codes = [ErrorCode::OutOfMemory, ErrorCode::InvalidHandle];
    for (call, code) in Call::ALL.into_iter().flat_map(|call| codes.map(|code| (call, code))) {
        for nth in 1.. {
            let config = SimConfig { total_bytes: 256 * MIB, ..watched() };
            let (sim, program) = program_on(config, Options::default());
            let (lane, other) = (program.lane(), program.lane());
            let blocks = [30, 20, 50].map(|size| program.allocate(lane, size * MIB));
            let [first, second, third] = blocks;
            program.free(second);
            let mut cache = Cache::new(&program, lane, GIB);
            cache.grow(10 * MIB);
            sim.install_fault(FaultPlan { call, nth, mode: FaultMode::Once, code });
            let sizes = [60, 4, 40, 0, 100, 12].map(|size| size * MIB);
            for bytes in sizes {
                cache.use_on(other);
                let before = cache.growable.bytes();
                if bytes < before {
                    cache.shrink(bytes);
                } else if cache.try_grow(bytes).is_err() {
                    assert_eq!(cache.growable.bytes(), before);
                    cache.grow(bytes);
                }
                program.check();
            }
            let fired = sim.faults_fired();
            sim.clear_faults();
            cache.end();
            [first, third].into_iter().for_each(|block| program.free(block));
            program.end();
            if fired == 0 {
                break;
            }
        }
    }
}

fn random_run(seed: u64) {
    let mut rng = Rng::new(seed);
    let prefer = [Prefer::Balanced, Prefer::Memory, Prefer::Speed][rng.below(3) as usize];
    let config = SimConfig {
        total_bytes: 512 * MIB,
        event_latency_ns: 10_000 * rng.below(2),
        check_kernel_ns: 20_000,
        clock_jitter_ns: 5_000,
        seed,
        ..watched()
    };
    let (_, program) = program_on(config, Options::default().with_prefer(prefer));
    let lanes = [program.lane(), program.lane()];
    let mut caches: Vec<_> =
        (0..3).map(|at| Cache::new(&program, lanes[at % 2], 300 * MIB)).collect();
    let mut blocks: Vec<Block> = Vec::new();
    for _ in 0..250 {
        let lane = lanes[rng.below(2) as usize];
        let cache = &mut caches[rng.below(3) as usize];
        match rng.below(8) {
            0..2 => drop(cache.try_grow(rng.below(300 * MIB))),
            2 => cache.shrink(rng.below(cache.growable.bytes() + 1)),
            3 => cache.use_on(lane),
            4 if rng.below(8) == 0 => drop(program.allocator.trim().unwrap()),
            4 if rng.below(8) == 0 => {
                let max_bytes = GIB + rng.below(GIB);
                let old = std::mem::replace(cache, Cache::new(&program, lane, max_bytes));
                old.end();
            }
            _ if rng.below(2) == 0 && !blocks.is_empty() => {
                let block = blocks.swap_remove(rng.below(blocks.len() as u64) as usize);
                program.free(block);
            }
            _ => blocks.extend(program.try_allocate(lane, 1 + rng.below(40 * MIB)).ok()),
        }
        program.check();
    }
    caches.into_iter().for_each(Cache::end);
    blocks.into_iter().for_each(|block| program.free(block));
    program.end();
}

#[test]
fn random_growth_beside_blocks_is_safe_and_leaves_nothing() {
    let seed = std::env::var("DRYSTONE_SEED").ok().map(|seed| seed.parse().unwrap());
    for seed in seed.map_or(0..60, |seed| seed..seed + 1) {
        if let Err(panic) = std::panic::catch_unwind(|| random_run(seed)) {
            eprintln!("seed {seed}: DRYSTONE_SEED={seed} runs it alone");
            std::panic::resume_unwind(panic);
        }
    }
}
