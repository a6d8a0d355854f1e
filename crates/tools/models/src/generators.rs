//! Programs that are hard on allocators, as traces made from a seed.
//!
//! Lives here: [`GENERATORS`], what each asks of its allocator (one file per kind), and `recorder`,
//! which all of them write through. Each one is there because some allocator pays for it with
//! memory, driver time or waits; none is typical.
//! Invariant: a trace follows from the program, its seed and its [`Extent`] alone, keeps the
//! model's invariants, never holds more than the extent's `live_bytes`, and frees all it took.
//!
//! ```
//! use drystone_models::generators::{Extent, Generator};
//!
//! let generator = Generator::named("few-sizes").unwrap();
//! let extent = Extent { events: 1000, ..generator.extent };
//! let trace = generator.trace(7, extent)?;
//! assert_eq!(trace.check(), Ok(()));
//! # Ok::<(), drystone_models::generators::NoRoom>(())
//! ```

mod churn;
mod inference;
mod limits;
mod overlap;
mod recorder;

use drystone_sim::Rng;
use drystone_trace::model::Trace;

pub use recorder::{Extent, NoRoom};
use recorder::{GIB, Recorder};

/// A program whose trace can be made.
#[derive(Debug)]
pub struct Generator {
    /// Its name on a command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub what: &'static str,
    /// How long it runs and how much it holds unless said otherwise.
    pub extent: Extent,
    run: fn(&mut Recorder, &mut Rng) -> Result<(), NoRoom>,
}

/// `name: what runs, so many events, so many GiB; "what it does"` for each.
macro_rules! generators {
    ($($name:literal: $run:path, $events:literal events, $live:literal GiB; $what:literal)*) => {
        /// All of them.
        pub const GENERATORS: [Generator; 13] = [$(Generator {
            name: $name,
            what: $what,
            extent: Extent { events: $events, live_bytes: $live * GIB },
            run: $run,
        }),*];
    };
}

generators! {
    "random": churn::random, 20_000 events, 32 GiB;
        "1 to 400 MiB, no size twice, freed in random order, as when serving requests"
    "random-small": churn::random_small, 20_000 events, 40 GiB;
        "1 to 64 MiB, no size twice, freed in random order"
    "few-sizes": churn::few_sizes, 20_000 events, 20 GiB;
        "20 sizes from 1 to 768 MiB in random order"
    "combs": churn::combs, 40_000 events, 8 GiB;
        "many blocks of one size, every other freed, then the next size in their place"
    "inference": inference::run, 100_000 events, 24 GiB;
        "a 32-layer model serves prompts of 64 to 8192 tokens, with caches that grow"
    "two-streams": overlap::two_streams, 20_000 events, 3 GiB;
        "two streams take turns, each with temporaries of sizes that vary"
    "two-streams-periodic": overlap::two_streams_periodic, 20_000 events, 3 GiB;
        "two streams take turns, each with the same temporaries every time"
    "prefetch": overlap::prefetch, 10_000 events, 3 GiB;
        "ten layers with a 150 MiB temporary each, beside a side stream's 200 MiB scratch"
    "crossed": overlap::crossed, 20_000 events, 3 GiB;
        "two streams send and receive: what one allocates, the other uses"
    "streams": overlap::streams, 10_000 events, 3 GiB;
        "streams come and go, each with a few blocks, some used on the default stream"
    "batch-finder": limits::batch_finder, 400 events, 128 GiB;
        "trials twice as large each time up to the limit, then smaller ones; for --capacity"
    "out-of-memory": limits::out_of_memory, 30 events, 81 GiB;
        "requests beside half, an eighth and a used cache that come to the limit together"
    "first-growth": limits::first_growth, 8 events, 64 GiB;
        "the first request asks for everything at once"
}

impl Generator {
    /// The program of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        GENERATORS.iter().find(|generator| generator.name == name)
    }

    /// Its trace.
    /// Errors: the extent's `live_bytes` are too few for a request that the program cannot do
    /// without.
    pub fn trace(&self, seed: u64, extent: Extent) -> Result<Trace, NoRoom> {
        let mut recorder = Recorder::new(extent);
        (self.run)(&mut recorder, &mut Rng::new(seed))?;
        let Extent { events, live_bytes } = extent;
        let name = format!("{} --seed {seed} --events {events} --live {live_bytes}", self.name);
        Ok(recorder.finish(name))
    }
}

#[cfg(test)]
mod tests;
