//! Engines from crates.io, unmodified, on the simulated device: `cargo xtask engines`.
//!
//! Each program of `engines/` runs as it is, with Drystone installed by a call, and with it
//! preloaded. Invariant: a table tells what each held, what that cost and what the oracle saw; the
//! command fails if a program used memory out of order, was not served, or held more than it may.

mod fit;
mod patched;
mod program;
mod run;
mod toolkit;

use anyhow::{Result, bail};
use clap::ValueEnum;

pub use program::Engine;
use program::{Built, Program};
use run::{Figures, WAYS, Way};

/// With batches whose shapes vary.
const BERT: Program = Program {
    name: "candle BERT, 40 batches",
    engine: Engine::Candle,
    arguments: ["bert", "40"],
    memory: "16GiB",
    is_patched: false,
    // The last handles, of 8 MiB, are in use in part.
    most_held: 1.02,
};

/// Its own pools take of the device what they want, in pages of their own.
const ENCODER: Program = Program {
    name: "burn encoder, 40 batches",
    engine: Engine::Burn,
    arguments: ["encoder", "40"],
    memory: "32GiB",
    ..BERT
};

const PROGRAMS: [Program; 7] = [
    Program { name: "candle Llama, 12 requests", arguments: ["llama", "12"], ..BERT },
    BERT,
    Program {
        name: "candle quantised Llama, 6 requests",
        arguments: ["quantized", "6"],
        // Its weights are small, of odd sizes, and stay: each leaves the rest of a granule.
        most_held: 1.07,
        ..BERT
    },
    ENCODER,
    Program { name: "the same, cubecl's pools off", is_patched: true, most_held: 1.06, ..ENCODER },
    Program {
        name: "kornia tracker, 60 frames",
        engine: Engine::Kornia,
        arguments: ["frames", "60"],
        // It is small, so that the last handles weigh more.
        most_held: 1.12,
        ..BERT
    },
    Program {
        name: "mistral.rs Llama, 24 requests",
        engine: Engine::Mistral,
        arguments: ["llama", "24"],
        // Caches of many sequences are small, and outlive what lies between them.
        most_held: 1.04,
        ..BERT
    },
];

/// Threads of burn take turns as they like: what two runs ask for may differ by this.
const SLACK_BYTES: u64 = 64 << 20;

/// Runs the programs of one engine, or of all, and looks for the smallest device that completes
/// one of candle's.
pub fn engines(only: Option<Engine>) -> Result<()> {
    let engines = only.map_or(Engine::value_variants().to_vec(), |engine| vec![engine]);
    let built = Built::new(&engines)?;
    let mut wrong = Vec::new();
    println!("{}", Figures::HEAD);
    for program in PROGRAMS.iter().filter(|program| engines.contains(&program.engine)) {
        wrong.extend(measure(&built, program)?);
    }
    if engines.contains(&BERT.engine) {
        wrong.extend(fit::fit(&built, &BERT)?);
    }
    if !wrong.is_empty() {
        bail!("not as it should be:\n{}", wrong.join("\n"));
    }
    Ok(())
}

/// Runs a program each way, prints what came of it, and says what should not be.
fn measure(built: &Built, program: &Program) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let mut as_it_is = None;
    for way in &WAYS {
        let figures = run::run(built, program, way, program.memory)?;
        println!("| {} | {} {}", program.name, way.name, figures.row());
        let plain: &Figures = as_it_is.get_or_insert(figures);
        let complaints = complaints(program, way, &figures, plain);
        wrong.extend(complaints.map(|what| format!("{}, {}: {what}", program.name, way.name)));
    }
    Ok(wrong)
}

fn complaints(
    program: &Program,
    way: &Way,
    figures: &Figures,
    plain: &Figures,
) -> impl Iterator<Item = &'static str> {
    let is_served = way.is_installed || way.is_preloaded;
    let is_tight = way.options.contains("memory");
    let checks = [
        (figures.violations > 0, "memory was used out of order"),
        (
            figures.asked_bytes.abs_diff(plain.asked_bytes) > SLACK_BYTES,
            "it asked for other memory",
        ),
        (is_served && figures.from_pool > 0, "memory came from the driver's pool"),
        (figures.held_bytes > plain.held_bytes + SLACK_BYTES, "it holds more than as it is"),
        (is_tight && figures.held() > program.most_held, "it holds more than it may"),
    ];
    checks.into_iter().filter_map(|(is_wrong, what)| is_wrong.then_some(what))
}
