//! What engines want of a CUDA toolkit where they are built, without one.
//!
//! A compiler that compiles nothing (`engines/nvcc`), the simulated driver and runtime, and stubs
//! of NVIDIA's libraries with every function that cudarc can call. Invariant: nothing of an engine
//! is changed; only what it finds in its environment is.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command::{path_after, root, target};
use crate::files::{link, made_folder};
use crate::package;
use crate::simcuda;
use crate::stubs::imports::{Imports, Names};
use crate::stubs::make_of;
use crate::toolchain::Toolchain;

/// Libraries, and the module of cudarc that declares their functions.
const LIBRARIES: [(&str, &str); 4] = [
    ("libcublas.so", "cublas"),
    ("libcublasLt.so", "cublaslt"),
    ("libcurand.so", "curand"),
    ("libnvrtc.so", "nvrtc"),
];

/// Variables by which build scripts look for a toolkit: cudarc's list.
const PLACES: [&str; 4] = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"];

/// A folder that looks like a toolkit.
pub struct Toolkit {
    folder: PathBuf,
    simulated: PathBuf,
}

/// Where engines are built.
pub fn engines_target() -> PathBuf {
    target().join("engines")
}

/// The workspace of the engines.
pub fn manifest() -> PathBuf {
    root().join("engines/Cargo.toml")
}

impl Toolkit {
    /// Puts it together, or what has changed of it.
    pub fn make() -> Result<Self> {
        let simulated = simcuda::build()?;
        let folder = engines_target().join("toolkit");
        for name in ["bin", "include", "lib64"] {
            made_folder(folder.join(name))?;
        }
        let folder = folder.canonicalize().context("find the toolkit")?;
        let toolkit = Self { folder, simulated };
        let compiler = root().join("engines/nvcc").canonicalize().context("find engines/nvcc")?;
        link(&compiler, &toolkit.folder.join("bin/nvcc"))?;
        let libraries = toolkit.libraries();
        for (name, simulated) in
            [("libcuda.so", "libcuda.so.1"), ("libcudart.so", "libcudart.so.13")]
        {
            link(&toolkit.simulated.join(simulated), &libraries.join(name))?;
        }
        make_of(&declared()?, &toolkit.simulated, &libraries, &Toolchain::local())?;
        Ok(toolkit)
    }

    fn libraries(&self) -> PathBuf {
        self.folder.join("lib64")
    }

    /// A command of cargo's that builds with it.
    pub fn cargo(&self) -> Result<Command> {
        let mut cargo = Command::new("cargo");
        cargo.env("PATH", path_after(&self.folder.join("bin"), "PATH")?);
        cargo.env("NVCC", self.folder.join("bin/nvcc")).env("CUDA_COMPUTE_CAP", "90");
        cargo.envs(PLACES.map(|place| (place, &self.folder)));
        Ok(cargo)
    }

    /// Has a program run with it.
    pub fn set_up(&self, program: &mut Command) -> Result<()> {
        let paths = env::join_paths([self.libraries(), self.simulated.clone()])?;
        program.env("LD_LIBRARY_PATH", paths).envs(PLACES.map(|place| (place, &self.folder)));
        Ok(())
    }
}

/// What cudarc, in the version of the engines' `Cargo.lock`, can call of each library.
fn declared() -> Result<Imports> {
    let sources = sources_of("cudarc")?;
    let mut imports = Imports::default();
    for (library, module) in LIBRARIES {
        let file = sources.join("src").join(module).join("sys/mod.rs");
        let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let names: BTreeSet<String> = functions(&text).map(str::to_owned).collect();
        ensure!(!names.is_empty(), "{} declares no function", file.display());
        imports.0.insert(library.to_owned(), Names::from([(String::new(), names)]));
    }
    Ok(imports)
}

/// The functions of a file of bindings.
fn functions(bindings: &str) -> impl Iterator<Item = &str> {
    bindings
        .lines()
        .filter_map(|line| line.strip_prefix("pub unsafe")?.strip_prefix(" fn ")?.split('(').next())
}

/// The folder of a crate's sources, in the version of the engines' `Cargo.lock`; fetched the first
/// time.
pub fn sources_of(name: &str) -> Result<PathBuf> {
    let manifest = manifest().display().to_string();
    let metadata = package::metadata(&["--locked", "--manifest-path", &manifest])?;
    let packages = metadata["packages"].as_array().context("there are no packages")?;
    let mut found = packages.iter().filter(|package| package["name"] == name);
    let manifest = found.next().and_then(|package| package["manifest_path"].as_str());
    ensure!(found.next().is_none(), "engines use several versions of {name}");
    let manifest = manifest.map(Path::new).and_then(Path::parent);
    Ok(manifest.with_context(|| format!("no engine uses {name}"))?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn functions_are_read_from_bindings() {
        let text = "pub unsafe\x20fn cublasCreate_v2(handle: *mut H) -> S {\n    fn inner();\n}\n";
        assert_eq!(functions(text).collect::<Vec<_>>(), ["cublasCreate_v2"]);
    }
}
