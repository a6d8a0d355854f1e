//! What engines want of a CUDA toolkit where they are built, without one.
//!
//! A compiler that compiles nothing (`engines/nvcc`), the simulated driver and runtime, and stubs
//! of NVIDIA's libraries with every function that cudarc can call. Invariant: nothing of an engine
//! is changed; only what it finds in its environment is.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::Cmd;

use crate::command::{cmd, link, made_folder, path_after, root, sh, target};
use crate::package::{list, metadata};
use crate::stubs::imports::{Imports, Names};
use crate::toolchain::Toolchain;
use crate::{simcuda, stubs};

/// Libraries, and the module of cudarc that declares their functions.
const LIBRARIES: [(&str, &str); 4] = [
    ("libcublas.so", "cublas"),
    ("libcublasLt.so", "cublaslt"),
    ("libcurand.so", "curand"),
    ("libnvrtc.so", "nvrtc"),
];

/// Variables by which build scripts look for a toolkit: cudarc's list.
const PLACES: [&str; 4] = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"];

/// The workspace of the engines, from the root.
pub const MANIFEST: &str = "engines/Cargo.toml";

pub fn engines_target() -> PathBuf {
    target().join("engines")
}

/// A folder that looks like a toolkit.
pub struct Toolkit {
    folder: PathBuf,
    simulated: PathBuf,
}

impl Toolkit {
    /// Puts it together, or what has changed of it.
    pub fn make() -> Result<Self> {
        let simulated = simcuda::build()?;
        let folder = engines_target().join("toolkit");
        for name in ["bin", "include", "lib64"] {
            made_folder(folder.join(name))?;
        }
        link(&root().join("engines/nvcc"), &folder.join("bin/nvcc"))?;
        let libraries = folder.join("lib64");
        link(&simulated.join("libcuda.so.1"), &libraries.join("libcuda.so"))?;
        link(&simulated.join("libcudart.so.13"), &libraries.join("libcudart.so"))?;
        stubs::make_of(&declared()?, &simulated, &libraries, &Toolchain::local())?;
        Ok(Self { folder, simulated })
    }

    pub fn build(&self, engine: &str, manifest: &str, options: &[&str]) -> Result<()> {
        let to = engines_target();
        let cargo = cmd!(
            "cargo build --package engine-{engine} --manifest-path {manifest} --target-dir {to}
            {options...}"
        );
        let bin = self.folder.join("bin");
        let cargo = cargo.env("PATH", path_after(&bin, "PATH")?).env("NVCC", bin.join("nvcc"));
        let places = PLACES.map(|place| (place, &self.folder));
        Ok(cargo.env("CUDA_COMPUTE_CAP", "90").envs(places).run()?)
    }

    pub fn set_up(&self, programs: Cmd<'static>) -> Result<Cmd<'static>> {
        let paths = env::join_paths([&self.folder.join("lib64"), &self.simulated])?;
        let places = PLACES.map(|place| (place, &self.folder));
        Ok(programs.env("LD_LIBRARY_PATH", paths).envs(places))
    }
}

/// What cudarc, in the version of the engines' `Cargo.lock`, can call of each library.
fn declared() -> Result<Imports> {
    let sources = sources_of("cudarc")?;
    let mut imports = Imports::new();
    for (library, module) in LIBRARIES {
        let file = sources.join("src").join(module).join("sys/mod.rs");
        let text = sh().read_file(&file)?;
        let of_line = |line: &str| {
            let name = line.strip_prefix("pub unsafe")?.strip_prefix(" fn ")?.split('(').next()?;
            Some((String::new(), name.to_owned()))
        };
        let names: Names = text.lines().filter_map(of_line).collect();
        ensure!(!names.is_empty(), "{} declares no function", file.display());
        imports.insert(library.to_owned(), names);
    }
    Ok(imports)
}

/// The folder of a crate's sources, in the version of the engines' `Cargo.lock`; fetched the first
/// time.
pub fn sources_of(name: &str) -> Result<PathBuf> {
    let metadata = metadata(&format!("--locked --manifest-path {MANIFEST}"))?;
    let mut found = list(&metadata, "packages")?.iter().filter(|package| package["name"] == name);
    let manifest = found.next().and_then(|package| package["manifest_path"].as_str());
    ensure!(found.next().is_none(), "engines use several versions of {name}");
    let folder = manifest.map(Path::new).and_then(Path::parent);
    Ok(folder.with_context(|| format!("no engine uses {name}"))?.to_owned())
}
