//! Stub libraries: what a wheel's own libraries import from NVIDIA's, counted and skipped.
//!
//! Each library exports exactly the names that the wheel imports from it, with their versions, so
//! the wheel loads and runs with none of NVIDIA's. `stubs/*.c` hold the functions whose answers are
//! read; all others count themselves and succeed. Nothing is compiled twice: a library is made anew
//! only when its source changed.

pub mod imports;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{root, run};
use crate::files::write_if_changed;
use crate::simcuda;
use crate::toolchain::Toolchain;
use imports::{Imports, Names};

/// Sources of the functions whose answers are read.
const ANSWERS: [&str; 3] = ["answers", "engines", "graphs"];
/// Libraries whose `...Create...` functions write a handle through their first argument.
const CREATORS: [&str; 5] = ["cublas", "cudnn", "curand", "cusparse", "cusolver"];

/// Libraries whose functions work in the stream that their `...SetStream` was given last.
const WORKERS: [&str; 5] = ["cublas", "cudnn", "cufft", "cusolverDn", "cusparse"];
/// What the names of functions have that do no such work.
const IDLE: &str =
    "Create Descr Destroy Find Finalize Get Init Lt Plan Set String Version bufferSize";

/// Makes the stubs of wheels, and the libraries that they need.
pub fn stubs(wheel_libraries: &[PathBuf], out: &Path) -> Result<()> {
    for library in make(wheel_libraries, &simcuda::build()?, out, &Toolchain::local())? {
        println!("{}", out.join(library).display());
    }
    Ok(())
}

/// Makes a stub of every library of NVIDIA's that the libraries in these folders need, beside the
/// simulated ones; says which.
pub fn make(
    wheel_libraries: &[PathBuf],
    simulated: &Path,
    out: &Path,
    toolchain: &Toolchain,
) -> Result<Vec<String>> {
    let imports = imports::read_all(wheel_libraries)?;
    if imports.0.is_empty() {
        bail!("no library in {wheel_libraries:?} needs one of NVIDIA's");
    }
    make_of(&imports, simulated, out, toolchain)?;
    Ok(imports.0.into_keys().collect())
}

/// Makes a stub of each library, with the names that are imported from it.
pub fn make_of(
    imports: &Imports,
    simulated: &Path,
    out: &Path,
    toolchain: &Toolchain,
) -> Result<()> {
    fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
    let mut answers = Vec::new();
    let mut is_new = false;
    for name in ANSWERS {
        let object = out.join(format!("{name}.o"));
        is_new |= compile(name, &object, out, toolchain)?;
        answers.push(object);
    }
    for (library, names) in &imports.0 {
        let stub = Stub { names, file: out.join(library), answers: &answers, simulated };
        stub.link(library, is_new, toolchain)?;
    }
    Ok(())
}

/// Compiles answers, unless they are up to date; says whether they were not.
fn compile(name: &str, object: &Path, out: &Path, toolchain: &Toolchain) -> Result<bool> {
    let source = root().join(format!("xtask/stubs/{name}.c"));
    let text = fs::read_to_string(&source).with_context(|| format!("read {}", source.display()))?;
    let is_new = write_if_changed(&out.join(format!("{name}.c")), &text)? || !object.exists();
    if is_new {
        let mut compile = cc(toolchain)?;
        compile.args(["-ffunction-sections", "-fdata-sections", "-c"]);
        compile.arg(&source).arg("-o").arg(object);
        run(compile)?;
    }
    Ok(is_new)
}

fn cc(toolchain: &Toolchain) -> Result<Command> {
    let mut cc = toolchain.cc()?;
    // A stub has fewer parameters than what it stands for.
    cc.args(["-O1", "-w", "-fPIC", "-fno-builtin", "-fvisibility=default"]);
    Ok(cc)
}

/// A library to be made: what it exports, where it goes, and what it is made of.
struct Stub<'a> {
    names: &'a Names,
    file: PathBuf,
    answers: &'a [PathBuf],
    simulated: &'a Path,
}

impl Stub<'_> {
    fn link(&self, library: &str, is_forced: bool, toolchain: &Toolchain) -> Result<()> {
        let beside = |ending: &str| self.file.with_file_name(format!("{library}.{ending}"));
        let (source, versions) = (beside("c"), beside("ld"));
        let is_new = write_if_changed(&source, &stub_source(self.names))?;
        let is_new = write_if_changed(&versions, &version_script(self.names))? || is_new;
        if !(is_new || is_forced) && self.file.exists() {
            return Ok(());
        }
        let mut link = cc(toolchain)?;
        link.args(["-shared", "-Wl,--gc-sections", "-Wl,-rpath,$ORIGIN"]);
        link.arg(format!("-Wl,-soname,{library}")).arg(&source).args(self.answers);
        link.arg(format!("-Wl,--version-script={}", versions.display()));
        link.arg(self.simulated.join("libcuda.so.1"));
        link.args(["-Wl,--as-needed", "-ldl", "-lpthread", "-o"]).arg(&self.file);
        run(link)
    }
}

/// The generated functions: weak, so that those of `answers.c` take their places.
fn stub_source(names: &Names) -> String {
    let mut text = String::from(
        "extern int simcuda_count(const char* name);\n\
         extern void work(void);\n\
         static char handle[64];\n\
         #define STUB(name) __attribute__((weak)) int name(void) \\\n\
           { simcuda_count(#name); return 0; }\n\
         #define CREATOR(name) __attribute__((weak)) int name(void** made) \\\n\
           { simcuda_count(#name); *made = handle; return 0; }\n\
         #define WORKER(name) __attribute__((weak)) int name(void) \\\n\
           { simcuda_count(#name); work(); return 0; }\n",
    );
    for name in names.values().flatten() {
        text.push_str(&format!("{}({name})\n", kind(name)));
    }
    text
}

/// Which of the macros defines a function.
fn kind(name: &str) -> &'static str {
    let begins = |list: &[&str]| list.iter().any(|begin| name.starts_with(begin));
    if begins(&CREATORS) && (name.contains("Create") || name.contains("_create")) {
        "CREATOR"
    } else if begins(&WORKERS) && !IDLE.split(' ').any(|part| name.contains(part)) {
        "WORKER"
    } else {
        "STUB"
    }
}

fn version_script(names: &Names) -> String {
    let mut text = String::new();
    for (version, names) in names {
        let list: String = names.iter().map(|name| format!("  {name};\n")).collect();
        let begin = if version.is_empty() { String::new() } else { format!("{version} ") };
        text.push_str(&format!("{begin}{{\nglobal:\n{list}local:\n  *;\n}};\n"));
    }
    if text.is_empty() { "{ local: *; };\n".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::imports::tests::names;
    use super::*;

    #[test]
    fn functions_make_handles_work_or_only_count() {
        for (name, expected) in [
            ("cudnnCreate", "CREATOR"),
            ("cusparseSpSV_createDescr", "CREATOR"),
            ("ncclDevCommCreate", "STUB"),
            ("cublasSgemm_v2", "WORKER"),
            ("cudnnBackendExecute", "WORKER"),
            ("cusolverDnSgetrf", "WORKER"),
            ("cudnnBackendFinalize", "STUB"),
            ("cudnnSetTensorNdDescriptor", "STUB"),
            ("cublasLtMatmulDescDestroy", "STUB"),
            ("cufftXtMakePlanMany", "STUB"),
        ] {
            assert_eq!(kind(name), expected, "{name}");
        }
        assert!(
            stub_source(&names(&[("v", "cublasSgemm_v2")])).ends_with("WORKER(cublasSgemm_v2)\n")
        );
    }

    #[test]
    fn a_library_exports_its_names_with_their_versions() {
        assert_eq!(
            version_script(&names(&[("libcublas.so.13", "cublasSetStream_v2")])),
            "libcublas.so.13 {\nglobal:\n  cublasSetStream_v2;\nlocal:\n  *;\n};\n"
        );
        assert!(version_script(&names(&[("", "ncclSend")])).starts_with("{\nglobal:"));
        assert_eq!(version_script(&Names::new()), "{ local: *; };\n");
    }
}
