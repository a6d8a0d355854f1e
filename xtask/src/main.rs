//! Development commands, run as `cargo xtask COMMAND`. Each does its own set-up.
//!
//! Lives here: which tools run in which order, and nothing of the product. The house rules that no
//! tool checks are a test beside this: `tests/tidy.rs`.

mod bindings;
mod capi;
mod simcuda;
mod stubs;
mod torch;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

/// Fuzz targets, as in `fuzz/Cargo.toml`.
const FUZZ_TARGETS: [&str; 5] = ["pickle", "csv", "rmm", "options", "heap"];

/// The PyTorch whose snapshots are written and whose viewer must read them.
const TORCH_VERSION: &str = "2.11.0";
/// As in `Cargo.lock`.
const GUNGRAUN_VERSION: &str = "0.20.0";

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development commands of Drystone")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run every test, of every crate.
    Test,
    /// Check formatting, lints and documentation.
    Lint,
    /// Check that the driver crate compiles against every version of CUDA's bindings.
    Bindings,
    /// Build the C library as it is shipped, and check its size and what it needs.
    Capi {
        /// Where it goes; `target/capi` unless said otherwise.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Build the simulated CUDA libraries, for programs to run on with no GPU.
    Simcuda {
        /// Where they go; `target/simcuda` unless said otherwise.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Make stubs of what a PyTorch wheel's libraries import from NVIDIA's.
    Stubs {
        /// The folder of the wheel's own libraries, `torch/lib`.
        #[arg(long)]
        wheel_libs: PathBuf,
        /// Where the stubs go.
        #[arg(long)]
        out: PathBuf,
    },
    /// Run Python with PyTorch on the simulated device; installs PyTorch the first time.
    Torch {
        /// What Python is given: a script and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run every fuzz target from its corpus; installs cargo-fuzz if it is missing.
    Fuzz {
        /// Seconds for each target.
        #[arg(long, default_value_t = 20)]
        seconds: u32,
    },
    /// Time the hit path, the replay and the decoders.
    Bench,
    /// Count the hit path's instructions under valgrind, which must be there; installs
    /// gungraun-runner if it is missing.
    Instructions,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Task::Test => test(),
        Task::Lint => lint(),
        Task::Bindings => bindings::bindings(),
        Task::Capi { out } => {
            println!("{}", capi::build(out)?.display());
            Ok(())
        }
        Task::Simcuda { out } => {
            let folder = out.map_or_else(simcuda::build, |out| simcuda::build_in(&out))?;
            println!("{}", folder.display());
            Ok(())
        }
        Task::Stubs { wheel_libs, out } => stubs::stubs(&wheel_libs, &out),
        Task::Torch { arguments } => torch::torch(&arguments),
        Task::Fuzz { seconds } => fuzz(seconds),
        Task::Bench => bench(&["hit_path", "replay", "decode"]),
        Task::Instructions => instructions(),
    }
}

fn test() -> Result<()> {
    let simulated = simcuda::build()?;
    let mut paths = vec![simulated.clone()];
    paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    let mut tests = Command::new("cargo");
    tests.args(["test", "--workspace", "--no-fail-fast"]);
    tests.env("LD_LIBRARY_PATH", std::env::join_paths(paths)?).env("DRYSTONE_SIMCUDA", simulated);
    match memory_viz() {
        Ok(path) => {
            tests.env("MEMORY_VIZ", path);
        }
        // Without a network the test that needs it says that it skips.
        Err(error) => eprintln!("PyTorch's viewer is not at hand: {error:#}"),
    }
    let (all, torch) = (run(tests), torch::test());
    all.and(torch)
}

/// PyTorch's own snapshot viewer, fetched once.
fn memory_viz() -> Result<PathBuf> {
    let folder = root().join("target/memory_viz");
    let path = folder.join(format!("torch-{TORCH_VERSION}.py"));
    if !path.exists() {
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut fetch = Command::new("python3");
        fetch.args(["xtask/fetch_memory_viz.py", TORCH_VERSION]).arg(&path);
        run(fetch)?;
    }
    path.canonicalize().with_context(|| format!("find {}", path.display()))
}

fn lint() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])?;
    let mut doc = Command::new("cargo");
    doc.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings");
    run(doc)
}

fn bench(names: &[&str]) -> Result<()> {
    names
        .iter()
        .try_for_each(|name| cargo(&["bench", "--package", "drystone-benches", "--bench", name]))
}

fn instructions() -> Result<()> {
    // The runner must have the version of the library.
    cargo(&["install", "--locked", "--version", GUNGRAUN_VERSION, "gungraun-runner"])?;
    bench(&["instructions"])
}

fn fuzz(seconds: u32) -> Result<()> {
    let is_installed = Command::new("cargo")
        .args(["fuzz", "--version"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_installed {
        cargo(&["install", "--locked", "cargo-fuzz"])?;
    }
    for target in FUZZ_TARGETS {
        // What a run finds goes to a folder that git ignores; the committed seeds stay as they are.
        let found = root().join("fuzz/corpus").join(target);
        let seeds = root().join("fuzz/seeds").join(target);
        std::fs::create_dir_all(&found).with_context(|| format!("make {}", found.display()))?;
        let mut command = Command::new("cargo");
        // Without a sanitizer the stable toolchain can build the targets.
        command.args(["fuzz", "run", "--sanitizer", "none", target]);
        command.arg(found).arg(seeds).args(["--", "-rss_limit_mb=2048", "-timeout=10"]);
        command.arg(format!("-max_total_time={seconds}")).current_dir(root().join("fuzz"));
        run(command)?;
    }
    Ok(())
}

fn cargo(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(arguments);
    run(command)
}

/// Runs a command in the repository's root and fails if it does.
fn run(mut command: Command) -> Result<()> {
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    let shown = format!("{command:?}").replace('"', "");
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start {shown}"))?;
    if !status.success() {
        bail!("{shown} failed: {status}");
    }
    Ok(())
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}
