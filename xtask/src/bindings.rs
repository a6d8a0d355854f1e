//! `cargo xtask bindings`: that the crates on cudarc compile with every CUDA they run on.
//!
//! Programs choose the version of CUDA's bindings, and of cudarc from our floor up; names and
//! layouts differ between them. Builds in folders of its own, so that nothing else is built anew.

use std::path::PathBuf;

use anyhow::Result;

use crate::command::{cmd, copy, root, sh, target};
use crate::simcuda;

/// CUDA 12.0 and all after it that cudarc has bindings for.
const VERSIONS: [&str; 14] = [
    "12000", "12010", "12020", "12030", "12040", "12050", "12060", "12080", "12090", "13000",
    "13010", "13020", "13030", "13040",
];

/// With the oldest cudarc that `Cargo.toml` admits: engines pin it. Cargo takes one for both.
const FLOOR: &str = "cudarc = { version = \"=0.19.5\", default-features = false }";

/// With a cudarc that is linked with the driver.
const LINKED: &str = "cudarc = { version = \"0.19.5\", default-features = false, \
    features = [\"std\", \"driver\", \"dynamic-linking\", \"cuda-13000\"] }";

/// A program whose slices come from Drystone then, too.
const PROGRAM: &str = r#"
use cudarc::driver::CudaContext;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    drystone_cudarc::install(&drystone::Options::default())?;
    let slice = CudaContext::new(0)?.new_stream()?.alloc_zeros::<f32>(1 << 20)?;
    let live = drystone_cudarc::installed(0).map(|one| one.stats().all.allocations.current);
    drop(slice);
    if live == Some(1) { Ok(()) } else { Err(format!("{live:?} slices are Drystone's").into()) }
}
"#;

pub fn bindings() -> Result<()> {
    let builds = target().join("bindings");
    for version in VERSIONS {
        cmd!(
            "env CUDARC_CUDA_VERSION={version} CARGO_TARGET_DIR={builds}
            cargo check --quiet --package drystone-cudarc"
        )
        .run()?;
    }
    let floor = package("cudarc-floor", FLOOR, "src/lib.rs", "//! Nothing: it has to build.\n")?;
    cmd!("env --chdir={floor} CARGO_TARGET_DIR={builds} cargo check --quiet").run()?;

    let libraries = simcuda::build()?;
    let linked = package("cudarc-linked", LINKED, "src/main.rs", PROGRAM)?;
    let search = format!("cargo::rustc-link-search=native={}", libraries.display());
    let script = format!("fn main() {{ println!({search:?}); }}\n");
    sh().write_file(linked.join("build.rs"), script)?;
    Ok(cmd!(
        "env --chdir={linked} CARGO_TARGET_DIR={builds} LD_LIBRARY_PATH={libraries}
        SIMCUDA_CONF=strict:true cargo run --quiet"
    )
    .run()?)
}

/// A package in a folder of its own, with all other dependencies as they are locked here.
fn package(name: &str, dependency: &str, file: &str, text: &str) -> Result<PathBuf> {
    let folder = root().join("target").join(name);
    let crates = root().join("crates").display().to_string();
    let manifest = format!(
        "[workspace]\n[package]\nname = {name:?}\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [dependencies]\ndrystone = {{ path = \"{crates}/drystone\" }}\n\
         drystone-cudarc = {{ path = \"{crates}/cudarc\" }}\n{dependency}\n"
    );
    sh().write_file(folder.join(file), text)?;
    sh().write_file(folder.join("Cargo.toml"), manifest)?;
    copy(&root().join("Cargo.lock"), &folder.join("Cargo.lock"))?;
    Ok(folder)
}
