//! A program of `engines/`: one run of it, its figures, and the smallest device that completes it.

use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::patched;
use super::toolkit::{Toolkit, engines_target};
use crate::command::sh;

/// A program of `engines/`, and what it does.
pub struct Program {
    /// As in the table.
    pub name: &'static str,
    pub engine: &'static str,
    pub arguments: [&'static str; 2],
    /// Whether cubecl is patched.
    pub is_patched: bool,
    /// What it may hold over what it asks for, with `prefer:memory`.
    pub most_held: f64,
}

/// One over cubecl as it is.
pub const fn program(
    name: &'static str,
    engine: &'static str,
    arguments: [&'static str; 2],
    most_held: f64,
) -> Program {
    Program { name, engine, arguments, is_patched: false, most_held }
}

impl Program {
    /// Where it is, and where it runs.
    fn folder(&self) -> PathBuf {
        if self.is_patched { patched::folder() } else { engines_target().join("debug") }
    }
}

/// How a program comes to its memory.
pub struct Way {
    pub name: &'static str,
    pub route: Route,
    /// `DRYSTONE_CONF`
    pub options: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Route {
    AsItIs,
    Installed,
    Preloaded,
}

/// All of them; as it is comes first.
pub const WAYS: [Way; 5] = [
    Way { name: "as it is", route: Route::AsItIs, options: "" },
    Way { name: "installed", route: Route::Installed, options: "" },
    Way { name: "installed, `prefer:memory`", route: Route::Installed, options: "prefer:memory" },
    Way { name: "preloaded", route: Route::Preloaded, options: "" },
    Way { name: "preloaded, `prefer:memory`", route: Route::Preloaded, options: "prefer:memory" },
];

/// The oracle's kernels run up to 50 µs, the engine's own for 20 µs.
const DEVICE: &str = "oracle:true,check_kernel_us:50,kernel_us:20";

const MEMORY_CALLS: &str = "cuMemAllocAsync cuMemFreeAsync cuMemAlloc_v2 cuMemFree_v2 \
    cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap \
    cuMemSetAccess";

/// The search for the smallest device ends when the answer is known to this many MiB.
const STEP_MIB: u64 = 8;
/// A program completes on this much each way; burn takes more than it uses.
const AMPLE_MIB: u64 = 16 << 10;

/// What a program asked for, and what that took of the device.
#[derive(Clone, Copy)]
pub struct Figures {
    /// At most at one time, in stream order.
    pub asked_bytes: u64,
    /// Of the device at most: also what libraries and other calls take.
    pub held_bytes: u64,
    driver_calls: u64,
    /// Of them, those that take and give memory or map it.
    memory_calls: u64,
    /// By the prices of the simulated device.
    driver_time_us: f64,
    /// Requests that reached the driver's own pool.
    pub from_pool: u64,
    pub violations: u64,
}

impl Figures {
    pub const HEAD: &str = "\
| program | way | asked, MiB | held, MiB | held / asked | driver calls | of them for memory \
| driver time, ms | from the driver's pool | violations |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

    pub fn held(&self) -> f64 {
        self.held_bytes as f64 / self.asked_bytes as f64
    }

    /// The rest of a row of the table.
    pub fn row(&self) -> String {
        let Self { driver_calls, memory_calls, from_pool, violations, .. } = self;
        let (asked, held) = (self.asked_bytes >> 20, self.held_bytes >> 20);
        let (ratio, time_ms) = (self.held(), self.driver_time_us / 1e3);
        format!(
            "| {asked} | {held} | {ratio:.3} | {driver_calls} | {memory_calls} | {time_ms:.0} \
             | {from_pool} | {violations} |"
        )
    }

    fn read(output: &Output, stats: &Value) -> Option<Self> {
        let said = String::from_utf8_lossy(&output.stdout);
        let asked = said.lines().rev().find_map(|line| line.strip_prefix("asked "))?;
        let device = &stats["devices"][0];
        let calls = |name: &str| stats["functions"][name]["calls"].as_u64().unwrap_or(0);
        Some(Self {
            asked_bytes: asked.parse().ok()?,
            memory_calls: MEMORY_CALLS.split(' ').map(calls).sum(),
            held_bytes: device["peak_physical_bytes"].as_u64()?,
            driver_calls: device["calls"].as_u64()?,
            driver_time_us: device["driver_time_us"].as_f64()?,
            from_pool: calls("cuMemAllocAsync"),
            violations: device["violations"].as_u64()?,
        })
    }
}

/// What programs run with.
pub struct Bench {
    pub toolkit: Toolkit,
    /// What is preloaded.
    pub preload: PathBuf,
}

impl Bench {
    /// Runs a program that has to complete.
    pub fn run(&self, program: &Program, way: &Way) -> Result<Figures> {
        let ample_mib = if program.engine == "burn" { 2 * AMPLE_MIB } else { AMPLE_MIB };
        let output = self.output(program, way, ample_mib)?;
        let (name, way, said) = (program.name, way.name, String::from_utf8_lossy(&output.stderr));
        ensure!(is_complete(&output), "{name}, {way}: {}\n{said}", output.status);
        let stats = sh().read_file(stats_file()).unwrap_or_default();
        let figures = Figures::read(&output, &serde_json::from_str(&stats).unwrap_or_default());
        figures.with_context(|| format!("{name}, {way}: its figures are missing"))
    }

    /// The smallest device that completes a program, in MiB.
    pub fn fit_mib(&self, program: &Program, way: &Way) -> Result<u64> {
        let fits = |mib| self.output(program, way, mib);
        let (mut refused, mut completed) = (0, AMPLE_MIB);
        let is_completed = is_complete(&fits(completed)?);
        ensure!(is_completed, "{} does not complete on {completed} MiB", program.name);
        while completed - refused > STEP_MIB {
            let middle = refused.midpoint(completed);
            match is_complete(&fits(middle)?) {
                true => completed = middle,
                false => refused = middle,
            }
        }
        Ok(completed)
    }

    /// What a program wrote on a device of this much memory, which leaves its statistics.
    fn output(&self, program: &Program, way: &Way, memory_mib: u64) -> Result<Output> {
        sh().remove_path(stats_file())?;
        let folder = program.folder();
        let kind = if way.route == Route::Installed { "installed" } else { "plain" };
        let mut engine = Command::new(folder.join(format!("{}-{kind}", program.engine)));
        self.toolkit.set_up(&mut engine)?;
        engine.args(program.arguments).current_dir(folder).env("DRYSTONE_CONF", way.options);
        let device = format!("memory:{memory_mib}MiB,{DEVICE},stats:{}", stats_file().display());
        engine.env("SIMCUDA_CONF", device);
        if way.route == Route::Preloaded {
            engine.env("LD_PRELOAD", &self.preload);
        }
        engine.output().with_context(|| format!("cannot start {engine:?}"))
    }
}

fn stats_file() -> PathBuf {
    engines_target().join("stats.json")
}

/// A thread of an engine may fail where the program does not notice.
fn is_complete(output: &Output) -> bool {
    output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("panicked")
}
