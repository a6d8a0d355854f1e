//! Random runs on random devices: 1,000 seeds, each a device nearly full, several streams, late
//! events, and everything a program may do in any order. The oracle must find nothing, every
//! invariant must hold, and at the end nothing may be left.
//!
//! `DRYSTONE_SEEDS` sets how many seeds are run, `DRYSTONE_SEED` runs one. A run of one thread
//! repeats itself exactly; one in twenty seeds is run with real threads, whose order does not.

mod actor;
mod world;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

pub use actor::{Actor, Shared};
use drystone::driver::Driver;
pub use world::{Failure, World};

/// Steps of a run of one thread.
const STEPS: u32 = 250;
/// Steps of each thread of a run of several.
const THREAD_STEPS: u32 = 200;

/// Another driver over the device's own.
pub type Alter<'a> = &'a dyn Fn(Arc<dyn Driver>) -> Arc<dyn Driver>;

/// One thread, as many streams as the seed says. Returns a digest of all answers.
pub fn run(seed: u64, alter: Alter<'_>) -> Result<u64, Failure> {
    let mut world = World::new(seed, alter);
    let mut actor = Actor::new(&world.program, world.rng.split());
    for step in 0..STEPS {
        actor.step().map_err(|finding| world.failure(finding))?;
        world.look(step % 8 == 0)?;
    }
    actor.finish().map_err(|finding| world.failure(finding))?;
    let digest = actor.digest();
    world.end()?;
    Ok(digest)
}

/// Several threads that also free each other's blocks.
fn run_threads(seed: u64) -> Result<(), Failure> {
    let mut world = World::new(seed, &|driver| driver);
    let shared = Shared::default();
    let count = 2 + world.rng.below(3);
    let mut actors: Vec<Actor<'_>> =
        (0..count).map(|_| Actor::new(&world.program, world.rng.split()).beside(&shared)).collect();
    let findings: Vec<Result<(), String>> = thread::scope(|scope| {
        let spawn = |actor: &mut Actor<'_>| {
            for _ in 0..THREAD_STEPS {
                actor.step()?;
            }
            actor.finish()
        };
        let threads: Vec<_> =
            actors.iter_mut().map(|actor| scope.spawn(move || spawn(actor))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for finding in findings {
        finding.map_err(|finding| world.failure(finding))?;
    }
    for block in shared.market.into_inner().unwrap() {
        world.program.free(block);
    }
    world.look(true)?;
    world.end()
}

fn run_any(seed: u64) -> Result<(), Failure> {
    if seed % 20 == 19 { run_threads(seed) } else { run(seed, &|driver| driver).map(|_| ()) }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

#[test]
fn i10_random_runs_are_safe_and_leave_nothing() {
    let seeds = match number("DRYSTONE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DRYSTONE_SEEDS").unwrap_or(1000),
    };
    let next = AtomicU64::new(seeds.start);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !seeds.contains(&seed) {
                        return;
                    }
                    if let Err(failure) = run_any(seed) {
                        failures.lock().unwrap().push((seed, failure.to_string()));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    if let Some((seed, finding)) = failures.first() {
        panic!(
            "{} seeds fail, the first is {seed}: {finding}\nreplay it with DRYSTONE_SEED={seed} \
             cargo test -p drystone --test suite i10_random_runs",
            failures.len()
        );
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..19 {
        let digest = run(seed, &|driver| driver).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(run(seed, &|driver| driver).unwrap(), digest, "seed {seed}");
    }
}
