//! Development commands, run as `cargo xtask COMMAND`. Each does its own set-up.
//!
//! Lives here: which tools run in which order, and nothing of the product. The house rules that no
//! tool checks are tests beside this, in `tests/`.

mod backtraces;
mod bindings;
mod capi;
mod command;
mod engines;
mod frameworks;
mod fuzz;
mod gpu;
mod notices;
mod package;
mod parts;
mod python;
mod release;
mod simcuda;
mod stubs;
mod studies;
mod suite;
mod test;
mod toolchain;
mod torch;
mod venv;
mod wheel;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::command::{TORCH_VERSION, cmd, target};
use crate::toolchain::Toolchain;

/// As in `Cargo.lock`.
const GUNGRAUN_VERSION: &str = "0.20.0";

/// `rust-version` of the crates that engines build, with its last number.
const OLDEST_RUST: &str = "1.88.0";

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development commands of Drystone")]
enum Task {
    /// Run every test, of every crate.
    Test,
    /// Check formatting, lints and documentation.
    Lint,
    /// Pack every crate that is published, and build it from its package alone.
    Package,
    /// Make and try all that a version is, and say what a person does with their keys.
    Release {
        /// Also from a checkout that is no release yet.
        #[arg(long)]
        dry_run: bool,
    },
    /// Check the licences, versions and sources of dependencies; installs cargo-deny if it is
    /// missing. `cargo deny check advisories` asks the network beside.
    Deny,
    /// Check that the driver crate compiles against every version of CUDA's bindings.
    Bindings,
    /// Build the C library as it is shipped, and check its size and what it needs.
    Capi {
        /// Where it goes; `target/capi` unless said otherwise.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Build engines from crates.io, unmodified, and run them on the simulated device: as they are,
    /// with Drystone installed by a call, and with it preloaded.
    Engines {
        /// Which of them; all unless said otherwise.
        #[arg(value_parser = engines::ENGINES)]
        engine: Option<String>,
    },
    /// Run tests, measurements and PyTorch on this machine's GPU; where there is none, pack them
    /// for a machine that has one and Python, and needs no Rust.
    Gpu {
        /// Pack them and do no more.
        #[arg(value_parser = ["pack"])]
        action: Option<String>,
        /// Rehearse on the simulated device, as slow as the published figures.
        #[arg(long, conflicts_with = "action")]
        simulated: bool,
        /// How long all steps may take together; a second run goes on.
        #[arg(long, default_value_t = 9)]
        minutes: u32,
        /// Where they go; `target/gpu` unless said otherwise.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Build the simulated CUDA libraries, for programs to run on with no GPU.
    Simcuda {
        /// Where they go; `target/simcuda` unless said otherwise.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Make stubs of what the libraries of PyTorch wheels import from NVIDIA's.
    Stubs {
        /// The folder of each wheel's own libraries, `torch/lib`.
        #[arg(long, num_args = 1.., required = true)]
        wheel_libs: Vec<PathBuf>,
        /// Where the stubs go.
        #[arg(long)]
        out: PathBuf,
    },
    /// Run Python with PyTorch on the simulated device; installs PyTorch the first time.
    Torch {
        /// Which PyTorch.
        #[arg(long, value_name = "VERSION", default_value = TORCH_VERSION)]
        torch: String,
        /// What Python is given: a script and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Run the tests of the Python package.
    Python {
        /// The PyTorch that they run with; installed the first time.
        #[arg(long, value_name = "VERSION", default_value = TORCH_VERSION)]
        torch: String,
    },
    /// Compile what the Python package brings for releases of PyTorch, from their headers alone.
    Shims {
        #[command(flatten)]
        args: wheel::ShimArgs,
        /// Only fail if the package index has releases that are not among these.
        #[arg(long)]
        new: bool,
    },
    /// Run PyTorch's own tests of memory with its allocator and with Drystone, on the simulated
    /// device, and tell what only the first passes.
    TorchTests {
        /// The PyTorch that they run with; installed the first time.
        #[arg(long, value_name = "VERSION", default_value = TORCH_VERSION)]
        torch: String,
        /// A checkout of PyTorch, of which the folders `test` and `tools` are read; then `-k WORD`
        /// for tests whose name has it.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build the Python package's wheel and its source archive; installs what that takes into a
    /// folder of its own the first time.
    Wheel(wheel::WheelArgs),
    /// Build the wheel of the simulated device, `drystone-sim`.
    SimWheel(wheel::SimWheelArgs),
    /// Build what the wheel has of Rust, for this machine.
    Native {
        /// Where it goes; `target/native/local` unless said otherwise.
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Run every fuzz target from its corpus; installs cargo-fuzz if it is missing.
    Fuzz {
        /// Seconds for each target.
        #[arg(long, default_value_t = 20)]
        seconds: u32,
    },
    /// Replay every trace, shipped and generated, on devices from ample to barely enough, and hold
    /// what came of it against the goals.
    #[command(disable_help_flag = true)]
    Figures(Rest),
    /// Run programs of real frameworks, which are installed the first time: what each allocator
    /// holds under them, and their dry runs.
    Frameworks {
        /// What each allocator holds under these programs alone, and no dry runs.
        names: Vec<String>,
    },
    /// Run public reports of memory bugs under each allocator, and hold what they come to against
    /// `docs/evidence/bugs-2026.md`.
    #[command(disable_help_flag = true)]
    Bugs(Rest),
    /// Run public reports of what breaks with mapped memory under each allocator and each route,
    /// and hold what they come to against `docs/evidence/matrix.md`.
    #[command(disable_help_flag = true)]
    Matrix(Rest),
    /// Hold dry runs against measurements of real GPUs, which must be there.
    #[command(disable_help_flag = true)]
    Score(Rest),
    /// Time the hit path, the replay and the decoders.
    Bench,
    /// Count the hit path's instructions under valgrind, which must be there; installs
    /// gungraun-runner if it is missing.
    Instructions,
}

/// What goes on to a script.
#[derive(clap::Args)]
struct Rest {
    /// Options; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    match carry_out(Task::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(skipped) if skipped.is::<parts::Skipped>() => {
            eprintln!("{skipped}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            // With its causes, and without the stack that `RUST_BACKTRACE` would add.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(task: Task) -> Result<()> {
    match task {
        Task::Test => test::test(),
        Task::Lint => lint(),
        Task::Package => package::publish_dry_run(),
        Task::Release { dry_run } => release::release(dry_run),
        Task::Deny => release::licences(),
        Task::Bindings => bindings::bindings(),
        Task::Engines { engine } => engines::engines(engine.as_deref()),
        Task::Gpu { action: Some(_), out, .. } => gpu::pack(out).map(drop),
        Task::Gpu { action: None, simulated, minutes, out } => gpu::gpu(simulated, minutes, out),
        Task::Stubs { wheel_libs, out } => stubs::stubs(&wheel_libs, &out),
        Task::Torch { torch, arguments } => torch::torch(&torch, &arguments),
        Task::Python { torch } => python::test(&torch),
        Task::TorchTests { torch, arguments } => python::torch_tests(&torch, &arguments),
        Task::Shims { args, new } => wheel::shims(&args, new),
        Task::Fuzz { seconds } => fuzz::fuzz(seconds),
        Task::Figures(rest) => studies::figures(&rest.arguments),
        Task::Frameworks { names } => frameworks::frameworks(&names),
        Task::Bugs(rest) => studies::reports("bugs", &rest.arguments),
        Task::Matrix(rest) => studies::reports("matrix", &rest.arguments),
        Task::Score(rest) => studies::score(&rest.arguments),
        Task::Bench => bench(&["hit_path", "stalls", "replay", "decode"]),
        Task::Instructions => instructions(),
        Task::Capi { out } => shown(capi::build(out)),
        Task::Simcuda { out } => {
            let out = out.unwrap_or_else(|| target().join("simcuda"));
            shown(simcuda::build_in(out, &Toolchain::local()))
        }
        Task::Wheel(args) => shown(wheel::wheel(&args)),
        Task::SimWheel(args) => shown(wheel::sim_wheel(&args)),
        Task::Native { out } => {
            let out = out.unwrap_or_else(|| wheel::native_folder("local"));
            shown(wheel::native(&Toolchain::local(), out))
        }
    }
}

/// Prints where something was made.
fn shown(made: Result<PathBuf>) -> Result<()> {
    println!("{}", made?.display());
    Ok(())
}

fn lint() -> Result<()> {
    cmd!("cargo fmt --all --check").run()?;
    for engines in ["engines/Cargo.toml", "engines/mistral/Cargo.toml"] {
        cmd!("cargo fmt --all --check --manifest-path {engines}").run()?;
    }
    cmd!("cargo clippy --workspace --all-targets -- --deny warnings").run()?;
    oldest_rust()?;
    Ok(cmd!("cargo doc --workspace --no-deps").env("RUSTDOCFLAGS", "--deny warnings").run()?)
}

/// What engines build, with all its features, by the oldest Rust that its manifests promise.
fn oldest_rust() -> Result<()> {
    if cmd!("rustup run {OLDEST_RUST} rustc --version").quiet().ignore_stdout().run().is_err() {
        eprintln!("skipped: no Rust {OLDEST_RUST}; `rustup toolchain install {OLDEST_RUST}`");
        return Ok(());
    }
    let builds = target().join("oldest");
    let check = cmd!(
        "rustup run {OLDEST_RUST} cargo check --all-features
        --package drystone --package drystone-cuda --package drystone-cudarc"
    );
    Ok(check.env("RUSTFLAGS", "--deny warnings").env("CARGO_TARGET_DIR", builds).run()?)
}

fn bench(names: &[&str]) -> Result<()> {
    let names = names.iter().flat_map(|name| ["--bench", name]);
    Ok(cmd!("cargo bench --package drystone-benches {names...}").run()?)
}

fn instructions() -> Result<()> {
    // The runner must have the version of the library.
    cmd!("cargo install --locked --version {GUNGRAUN_VERSION} gungraun-runner").run()?;
    bench(&["instructions"])
}
