//! One run of an engine's program, and its figures.

use std::fs;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::program::{Built, Program};
use super::toolkit::engines_target;

/// How a program comes to its memory.
pub struct Way {
    pub name: &'static str,
    pub is_installed: bool,
    pub is_preloaded: bool,
    /// `DRYSTONE_CONF`
    pub options: &'static str,
}

const AS_IT_IS: Way =
    Way { name: "as it is", is_installed: false, is_preloaded: false, options: "" };
const INSTALLED: Way = Way { name: "installed", is_installed: true, ..AS_IT_IS };
const PRELOADED: Way = Way { name: "preloaded", is_preloaded: true, ..AS_IT_IS };

/// All of them; as it is comes first.
pub const WAYS: [Way; 5] = [
    AS_IT_IS,
    INSTALLED,
    Way { name: "installed, `prefer:memory`", options: "prefer:memory", ..INSTALLED },
    PRELOADED,
    Way { name: "preloaded, `prefer:memory`", options: "prefer:memory", ..PRELOADED },
];

/// The oracle's kernels run up to 50 µs, the engine's own for 20 µs.
const DEVICE: &str = "oracle:true,check_kernel_us:50,kernel_us:20";

const MEMORY_CALLS: &str = "cuMemAllocAsync cuMemFreeAsync cuMemAlloc_v2 cuMemFree_v2 \
    cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap \
    cuMemSetAccess";

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
        format!(
            "| {} | {} | {:.3} | {} | {} | {:.0} | {} | {} |",
            self.asked_bytes >> 20,
            self.held_bytes >> 20,
            self.held(),
            self.driver_calls,
            self.memory_calls,
            self.driver_time_us / 1e3,
            self.from_pool,
            self.violations
        )
    }
}

/// Runs a program on a device of this much memory.
pub fn run(built: &Built, program: &Program, way: &Way, memory: &str) -> Result<Figures> {
    let (output, stats) = output(built, program, way, memory)?;
    let said = String::from_utf8_lossy(&output.stderr);
    // A thread of an engine may fail where the program does not notice.
    if !output.status.success() || said.contains("panicked") {
        bail!("{}, {}: {}\n{said}", program.name, way.name, output.status);
    }
    figures(&output, &stats)
        .with_context(|| format!("{}, {}: its figures are missing", program.name, way.name))
}

/// Whether a program completes on a device of this much memory.
pub fn completes(built: &Built, program: &Program, way: &Way, memory: &str) -> Result<bool> {
    let (output, _) = output(built, program, way, memory)?;
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(output.status.success() && !said.contains("panicked"))
}

/// What a program wrote, and the device's statistics.
fn output(built: &Built, program: &Program, way: &Way, memory: &str) -> Result<(Output, Value)> {
    let stats = engines_target().canonicalize()?.join("stats.json");
    let _ = fs::remove_file(&stats);
    let folder = program.folder();
    let kind = if way.is_installed { "installed" } else { "plain" };
    let path = folder.join(format!("{}-{kind}", program.engine.name()));
    let mut engine = Command::new(&path);
    built.toolkit.set_up(&mut engine)?;
    engine.args(program.arguments).current_dir(folder).env("DRYSTONE_CONF", way.options);
    let device = format!("memory:{memory},{DEVICE},stats:{}", stats.display());
    engine.env("SIMCUDA_CONF", device);
    if way.is_preloaded {
        engine.env("LD_PRELOAD", &built.preload);
    }
    let output = engine.output().with_context(|| format!("cannot start {}", path.display()))?;
    let text = fs::read_to_string(&stats).unwrap_or_default();
    Ok((output, serde_json::from_str(&text).unwrap_or_default()))
}

fn figures(output: &Output, stats: &Value) -> Option<Figures> {
    let said = String::from_utf8_lossy(&output.stdout);
    let asked = said.lines().rev().find_map(|line| line.strip_prefix("asked "))?;
    let device = &stats["devices"][0];
    let calls = |name: &str| stats["functions"][name]["calls"].as_u64().unwrap_or(0);
    Some(Figures {
        asked_bytes: asked.parse().ok()?,
        memory_calls: MEMORY_CALLS.split(' ').map(calls).sum(),
        held_bytes: device["peak_physical_bytes"].as_u64()?,
        driver_calls: device["calls"].as_u64()?,
        driver_time_us: device["driver_time_us"].as_f64()?,
        from_pool: calls("cuMemAllocAsync"),
        violations: device["violations"].as_u64()?,
    })
}
