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

const fn extent(events: u64, live_gib: u64) -> Extent {
    Extent { events, live_bytes: live_gib * GIB }
}

/// All of them.
pub const GENERATORS: [Generator; 13] = [
    Generator {
        name: "random",
        what: "1 to 400 MiB, no size twice, freed in random order, as when serving requests",
        extent: extent(20_000, 32),
        run: churn::random,
    },
    Generator {
        name: "random-small",
        what: "1 to 64 MiB, no size twice, freed in random order",
        extent: extent(20_000, 40),
        run: churn::random_small,
    },
    Generator {
        name: "few-sizes",
        what: "20 sizes from 1 to 768 MiB in random order",
        extent: extent(20_000, 20),
        run: churn::few_sizes,
    },
    Generator {
        name: "combs",
        what: "many blocks of one size, every other freed, then the next size in their place",
        extent: extent(40_000, 8),
        run: churn::combs,
    },
    Generator {
        name: "inference",
        what: "a 32-layer model serves prompts of 64 to 8192 tokens, with caches that grow",
        extent: extent(100_000, 24),
        run: inference::run,
    },
    Generator {
        name: "two-streams",
        what: "two streams take turns, each with temporaries of sizes that vary",
        extent: extent(20_000, 3),
        run: overlap::two_streams,
    },
    Generator {
        name: "two-streams-periodic",
        what: "two streams take turns, each with the same temporaries every time",
        extent: extent(20_000, 3),
        run: overlap::two_streams_periodic,
    },
    Generator {
        name: "prefetch",
        what: "ten layers with a 150 MiB temporary each, beside a side stream's 200 MiB scratch",
        extent: extent(10_000, 3),
        run: overlap::prefetch,
    },
    Generator {
        name: "crossed",
        what: "two streams send and receive: what one allocates, the other uses",
        extent: extent(20_000, 3),
        run: overlap::crossed,
    },
    Generator {
        name: "streams",
        what: "streams come and go, each with a few blocks, some used on the default stream",
        extent: extent(10_000, 3),
        run: overlap::streams,
    },
    Generator {
        name: "batch-finder",
        what: "trials twice as large each time up to the limit, then smaller ones; for --capacity",
        extent: extent(400, 128),
        run: limits::batch_finder,
    },
    Generator {
        name: "out-of-memory",
        what: "requests beside half, an eighth and a used cache that come to the limit together",
        extent: extent(30, 81),
        run: limits::out_of_memory,
    },
    Generator {
        name: "first-growth",
        what: "the first request asks for everything at once",
        extent: extent(8, 64),
        run: limits::first_growth,
    },
];

impl Generator {
    /// The program of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        GENERATORS.iter().find(|generator| generator.name == name)
    }

    /// Its trace.
    ///
    /// # Errors
    /// The extent's `live_bytes` are too few for a request that the program cannot do without.
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
