//! Engines from crates.io, unmodified, on the simulated device: `cargo xtask engines`.
//!
//! Each program of `engines/` runs as it is, with Drystone installed by a call, and with it
//! preloaded. Invariant: a table tells what each held, what that cost and what the oracle saw; the
//! command fails if a program used memory out of order, was not served, or held more than it may.

mod patched;
mod run;
mod toolkit;

use anyhow::{Result, ensure};

use crate::capi;
use run::{Bench, Figures, Program, Route, WAYS, Way, program};
use toolkit::{MANIFEST, Toolkit};

/// The crates of `engines/`, the cheapest to build first. The package of one is `engine-NAME`, its
/// programs are `NAME-plain` and `NAME-installed`.
pub const ENGINES: [&str; 4] = ["candle", "burn", "kornia", "mistral"];

/// With batches whose shapes vary. The last handles, of 8 MiB, are in use in part.
const BERT: Program = program("candle BERT, 40 batches", "candle", ["bert", "40"], 1.02);

const PROGRAMS: [Program; 7] = [
    program("candle Llama, 12 requests", "candle", ["llama", "12"], 1.02),
    BERT,
    // Its weights are small, of odd sizes, and stay: each leaves the rest of a granule.
    program("candle quantised Llama, 6 requests", "candle", ["quantized", "6"], 1.07),
    // Its own pools take of the device what they want, in pages of their own.
    program("burn encoder, 40 batches", "burn", ["encoder", "40"], 1.02),
    Program {
        is_patched: true,
        ..program("the same, cubecl's pools off", "burn", ["encoder", "40"], 1.06)
    },
    // It is small, so that the last handles weigh more.
    program("kornia tracker, 60 frames", "kornia", ["frames", "60"], 1.12),
    // Caches of many sequences are small, and outlive what lies between them.
    program("mistral.rs Llama, 24 requests", "mistral", ["llama", "24"], 1.04),
];

/// Threads of burn take turns as they like: what two runs ask for may differ by this.
const SLACK_BYTES: u64 = 64 << 20;

/// The device that `BERT` may need, installed or preloaded with `prefer:memory`.
const BERT_MIB: u64 = 1908;

/// Runs the programs of one engine, or of all, and looks for the smallest device that completes
/// one of candle's.
pub fn engines(only: Option<&str>) -> Result<()> {
    let engines = only.map_or(ENGINES.to_vec(), |engine| vec![engine]);
    let bench = build(&engines)?;
    let mut wrong = Vec::new();
    println!("{}", Figures::HEAD);
    for program in PROGRAMS.iter().filter(|program| engines.contains(&program.engine)) {
        let mut as_it_is = None;
        for way in &WAYS {
            let figures = bench.run(program, way)?;
            println!("| {} | {} {}", program.name, way.name, figures.row());
            let plain = as_it_is.get_or_insert(figures);
            let complaints = complaints(program, way, &figures, plain);
            wrong.extend(complaints.map(|what| format!("{}, {}: {what}", program.name, way.name)));
        }
    }
    if engines.contains(&BERT.engine) {
        println!("\n| {} | smallest device, MiB |\n| --- | --- |", BERT.name);
        for way in &WAYS {
            let mib = bench.fit_mib(&BERT, way)?;
            println!("| {} | {mib} |", way.name);
            if way.options.contains("memory") && mib > BERT_MIB {
                wrong.push(format!("{}, {}: needs {mib} MiB", BERT.name, way.name));
            }
        }
    }
    ensure!(wrong.is_empty(), "not as it should be:\n{}", wrong.join("\n"));
    Ok(())
}

/// Builds engines as they are and with the call of `install`, and what is preloaded.
fn build(engines: &[&str]) -> Result<Bench> {
    let toolkit = Toolkit::make()?;
    // First, for the programs of the same names take their places.
    if engines.contains(&"burn") {
        patched::build(&toolkit)?;
    }
    for engine in engines {
        let is_apart = *engine == "mistral";
        let manifest = if is_apart { "engines/mistral/Cargo.toml" } else { MANIFEST };
        toolkit.build(engine, manifest, &["--locked"])?;
    }
    Ok(Bench { toolkit, preload: capi::assemble(None)?.join(capi::PRELOAD) })
}

/// What should not be, of a program that ran one way.
fn complaints(
    program: &Program,
    way: &Way,
    figures: &Figures,
    plain: &Figures,
) -> impl Iterator<Item = &'static str> {
    let differs = figures.asked_bytes.abs_diff(plain.asked_bytes) > SLACK_BYTES;
    let is_served = way.route != Route::AsItIs;
    let is_tight = way.options.contains("memory");
    let checks = [
        (figures.violations > 0, "memory was used out of order"),
        (differs, "it asked for other memory"),
        (is_served && figures.from_pool > 0, "memory came from the driver's pool"),
        (figures.held_bytes > plain.held_bytes + SLACK_BYTES, "it holds more than as it is"),
        (is_tight && figures.held() > program.most_held, "it holds more than it may"),
    ];
    checks.into_iter().filter_map(|(is_wrong, what)| is_wrong.then_some(what))
}
