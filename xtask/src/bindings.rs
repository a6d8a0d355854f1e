//! `cargo xtask bindings`: that the crates on cudarc compile with every CUDA they run on.
//!
//! Programs choose the version of CUDA's bindings, and of cudarc from our floor up; names and
//! layouts differ between them. Builds in folders of its own, so that nothing else is built anew.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{root, run};
use crate::simcuda;

/// CUDA 12.0 and all after it that cudarc has bindings for.
const VERSIONS: [&str; 14] = [
    "12000", "12010", "12020", "12030", "12040", "12050", "12060", "12080", "12090", "13000",
    "13010", "13020", "13030", "13040",
];

/// The oldest cudarc that `Cargo.toml` admits: engines pin it.
const CUDARC_FLOOR: &str = "0.19.5";

pub(crate) fn bindings() -> Result<()> {
    let folder = root().join("target/bindings");
    for version in VERSIONS {
        let mut check = Command::new("cargo");
        check.args(["check", "--quiet", "--package", "drystone-cudarc"]);
        check.env("CUDARC_CUDA_VERSION", version).env("CARGO_TARGET_DIR", &folder);
        run(check)?;
    }
    floor(&folder)?;
    linked(&folder)
}

/// A package in a folder of its own, with all other dependencies as they are locked here.
fn package(name: &str, dependencies: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
    let folder = root().join("target").join(name);
    let source = folder.join("src");
    std::fs::create_dir_all(&source).with_context(|| format!("make {}", source.display()))?;
    let manifest = format!(
        "[workspace]\n[package]\nname = \"{name}\"\nversion = \"0.0.0\"\n\
         edition = \"2024\"\n[dependencies]\n\
         drystone-cudarc = {{ path = \"../../crates/cudarc\" }}\n{dependencies}\n"
    );
    for (name, text) in files.iter().chain([&("Cargo.toml", manifest.as_str())]) {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    let lock = root().join("Cargo.lock");
    std::fs::copy(&lock, folder.join("Cargo.lock"))
        .with_context(|| format!("copy {}", lock.display()))?;
    Ok(folder)
}

/// A package that uses the crate beside the oldest cudarc. Cargo takes one for both.
fn floor(target: &Path) -> Result<()> {
    let cudarc = format!("cudarc = {{ version = \"={CUDARC_FLOOR}\", default-features = false }}");
    let nothing = "//! Nothing: the dependencies are what is checked.\n";
    let folder = package("cudarc-floor", &cudarc, &[("src/lib.rs", nothing)])?;
    let mut check = Command::new("cargo");
    check.args(["check", "--quiet"]).current_dir(&folder).env("CARGO_TARGET_DIR", target);
    run(check)
}

/// A program whose cudarc is linked with the driver: its slices come from Drystone, too.
const LINKED: &str = r#"
use cudarc::driver::CudaContext;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    drystone_cudarc::install(&drystone::Options::default())?;
    let slice = CudaContext::new(0)?.new_stream()?.alloc_zeros::<f32>(1 << 20)?;
    let live = drystone_cudarc::installed(0).map(|one| one.stats().all.allocations.current);
    drop(slice);
    if live == Some(1) { Ok(()) } else { Err(format!("{live:?} slices are Drystone's").into()) }
}
"#;

fn linked(target: &Path) -> Result<()> {
    let libraries = simcuda::build()?;
    let dependencies = "drystone = { path = \"../../crates/drystone\" }\n\
        [dependencies.cudarc]\nversion = \"0.19.5\"\ndefault-features = false\n\
        features = [\"std\", \"driver\", \"dynamic-linking\", \"cuda-13000\"]";
    let search = format!(
        "fn main() {{ println!(\"cargo::rustc-link-search=native={}\"); }}\n",
        libraries.display()
    );
    let files = [("src/main.rs", LINKED), ("build.rs", search.as_str())];
    let folder = package("cudarc-linked", dependencies, &files)?;
    let mut program = Command::new("cargo");
    program.args(["run", "--quiet"]).current_dir(&folder).env("CARGO_TARGET_DIR", target);
    program.env("LD_LIBRARY_PATH", &libraries).env("SIMCUDA_CONF", "strict:true");
    run(program)
}
