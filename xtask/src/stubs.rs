//! Stub libraries: what a wheel's own libraries import from NVIDIA's, counted and skipped.
//!
//! Each library exports exactly the names that the wheel imports from it, with their versions, so
//! the wheel loads and runs with none of NVIDIA's. `stubs/*.c` hold the functions whose answers are
//! read; all others count themselves and succeed. Nothing is compiled twice: a library is made anew
//! only when its source changed.

pub mod imports;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use xshell::Cmd;

use crate::command::{root, sh, write_if_changed};
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
    ensure!(!imports.is_empty(), "no library in {wheel_libraries:?} needs one of NVIDIA's");
    make_of(&imports, simulated, out, toolchain)?;
    Ok(imports.into_keys().collect())
}

/// Makes a stub of each library, with the names that are imported from it.
pub fn make_of(
    imports: &Imports,
    simulated: &Path,
    out: &Path,
    toolchain: &Toolchain,
) -> Result<()> {
    let mut is_new = false;
    let answers = ANSWERS.map(|name| out.join(name).with_extension("o"));
    for (name, object) in ANSWERS.iter().zip(&answers) {
        let source = root().join(format!("xtask/stubs/{name}.c"));
        let text = sh().read_file(&source)?;
        if write_if_changed(&object.with_extension("c"), &text)? || !object.exists() {
            let compile = cc(toolchain)?.args(["-ffunction-sections", "-fdata-sections", "-c"]);
            compile.arg(source).arg("-o").arg(object).run()?;
            is_new = true;
        }
    }
    for (library, names) in imports {
        let [file, source, versions] =
            ["", ".c", ".ld"].map(|ending| out.join(format!("{library}{ending}")));
        let has_other_names = write_if_changed(&source, &stub_source(names))?;
        let has_other_versions = write_if_changed(&versions, &version_script(names))?;
        if !is_new && !has_other_names && !has_other_versions && file.exists() {
            continue;
        }
        let link = cc(toolchain)?.args(["-shared", "-Wl,--gc-sections", "-Wl,-rpath,$ORIGIN"]);
        let link = link.arg(format!("-Wl,-soname,{library}")).arg(source).args(&answers);
        let link = link.arg(format!("-Wl,--version-script={}", versions.display()));
        let link = link.arg(simulated.join("libcuda.so.1"));
        link.args(["-Wl,--as-needed", "-ldl", "-lpthread", "-o"]).arg(file).run()?;
    }
    Ok(())
}

/// A compiler of stubs, which have fewer parameters than what they stand for.
fn cc(toolchain: &Toolchain) -> Result<Cmd<'static>> {
    Ok(toolchain.cc()?.args(["-O1", "-w", "-fPIC", "-fno-builtin", "-fvisibility=default"]))
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
    for (_, name) in names {
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
    let mut lists = BTreeMap::<&str, String>::new();
    for (version, name) in names {
        *lists.entry(version).or_default() += &format!("  {name};\n");
    }
    if lists.is_empty() {
        return "{ local: *; };\n".to_owned();
    }
    let of_version = |(version, list): (&str, String)| {
        let begin = if version.is_empty() { String::new() } else { format!("{version} ") };
        format!("{begin}{{\nglobal:\n{list}local:\n  *;\n}};\n")
    };
    lists.into_iter().map(of_version).collect()
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
