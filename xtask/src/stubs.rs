//! Stub libraries: what a wheel's own libraries import from NVIDIA's, counted and skipped.
//!
//! Each library exports exactly the names that the wheel imports from it, with their versions, so
//! the wheel loads and runs with none of NVIDIA's. `stubs/answers.c` holds the functions whose
//! answers are read; all others count themselves and succeed. Nothing is compiled twice: a library
//! is made anew only when its source changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use object::elf::{DT_NEEDED, FileHeader64, SHN_UNDEF};
use object::read::elf::{ElfFile, Sym};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, SymbolIndex};

use crate::{root, run, simcuda};

/// Libraries that are simulated, not stubs.
const SIMULATED: [&str; 3] = ["libcuda.so", "libcudart.so", "libnvidia-ml.so"];
/// How the names of NVIDIA's libraries begin.
const NVIDIAS: [&str; 3] = ["libcu", "libnv", "libnccl"];
/// Where names without a version come from, by how they begin.
const UNVERSIONED: [(&str, &str); 5] = [
    ("cusparseLt", "libcusparseLt.so"),
    ("curand", "libcurand.so"),
    ("nccl", "libnccl.so"),
    ("cuFile", "libcufile.so"),
    ("nvshmem", "libnvshmem_host.so"),
];
/// Libraries whose `...Create...` functions write a handle through their first argument.
const CREATORS: [&str; 4] = ["cublas", "cudnn", "cusparse", "cusolver"];

/// Libraries whose functions work in the stream that their `...SetStream` was given last.
const WORKERS: [&str; 5] = ["cublas", "cudnn", "cufft", "cusolverDn", "cusparse"];
/// What the names of functions have that do no such work.
const IDLE: [&str; 14] = [
    "Create",
    "Destroy",
    "Descriptor",
    "Find",
    "Finalize",
    "Get",
    "Init",
    "Lt",
    "Plan",
    "Set",
    "String",
    "Version",
    "bufferSize",
    "Descr",
];

/// Names by version; the empty version is none.
type Names = BTreeMap<String, BTreeSet<String>>;

/// What libraries import, by the library they import it from.
#[derive(Default)]
struct Imports(BTreeMap<String, Names>);

/// Makes the stubs of a wheel, and the libraries that they need.
pub fn stubs(wheel_libraries: &Path, out: &Path) -> Result<()> {
    for library in make(wheel_libraries, &simcuda::build()?, out)? {
        println!("{}", out.join(library).display());
    }
    Ok(())
}

/// Makes a stub of every library of NVIDIA's that the libraries in a folder need, beside the
/// simulated ones; says which.
pub fn make(wheel_libraries: &Path, simulated: &Path, out: &Path) -> Result<Vec<String>> {
    let imports = read(wheel_libraries)?;
    if imports.0.is_empty() {
        bail!("no library in {} needs one of NVIDIA's", wheel_libraries.display());
    }
    fs::create_dir_all(out).with_context(|| format!("make {}", out.display()))?;
    let answers = out.join("answers.o");
    let source = root().join("xtask/stubs/answers.c");
    let text = fs::read_to_string(&source).with_context(|| format!("read {}", source.display()))?;
    let is_new = write_if_changed(&out.join("answers.c"), &text)?;
    if is_new || !answers.exists() {
        let mut compile = cc();
        compile.args(["-ffunction-sections", "-fdata-sections", "-c"]);
        run_with(compile.arg(&source).arg("-o").arg(&answers))?;
    }
    for (library, names) in &imports.0 {
        link(library, names, is_new, &answers, simulated, out)?;
    }
    Ok(imports.0.into_keys().collect())
}

fn cc() -> Command {
    let mut cc = Command::new("cc");
    // A stub has fewer parameters than what it stands for.
    cc.args(["-O1", "-w", "-fPIC", "-fno-builtin", "-fvisibility=default"]);
    cc
}

fn run_with(command: &mut Command) -> Result<()> {
    run(std::mem::replace(command, Command::new("true")))
}

fn link(
    library: &str,
    names: &Names,
    is_forced: bool,
    answers: &Path,
    simulated: &Path,
    out: &Path,
) -> Result<()> {
    let file = out.join(library);
    let source = out.join(format!("{library}.c"));
    let versions = out.join(format!("{library}.ld"));
    let is_new = write_if_changed(&source, &stub_source(names))?;
    let is_new = write_if_changed(&versions, &version_script(names))? || is_new;
    if !(is_new || is_forced) && file.exists() {
        return Ok(());
    }
    let mut link = cc();
    link.args(["-shared", "-Wl,--gc-sections", "-Wl,-rpath,$ORIGIN"]);
    link.arg(format!("-Wl,-soname,{library}")).arg(&source).arg(answers);
    link.arg(format!("-Wl,--version-script={}", versions.display()));
    link.arg(simulated.join("libcuda.so.1")).arg("-o").arg(&file);
    run_with(&mut link)
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
    } else if begins(&WORKERS) && !IDLE.iter().any(|part| name.contains(part)) {
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

/// Writes a text where it is not already; says whether it was not.
pub fn write_if_changed(file: &Path, text: &str) -> Result<bool> {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        return Ok(false);
    }
    fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    Ok(true)
}

/// What the libraries in a folder import from libraries of NVIDIA's outside it.
fn read(folder: &Path) -> Result<Imports> {
    let mut imports = Imports::default();
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in entries {
        files.push(entry.with_context(|| format!("read {}", folder.display()))?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "so"));
    files.sort();
    // Whom a library needs is known before what it wants of whom.
    let mut wanted = Vec::new();
    for file in &files {
        let (needed, symbols) = read_library(file)
            .with_context(|| format!("read the symbols of {}", file.display()))?;
        for library in needed.into_iter().filter(|library| is_stubbed(library)) {
            imports.0.entry(library).or_default();
        }
        wanted.extend(symbols);
    }
    for Wanted { name, version, library } in wanted {
        if let Some(library) = library.or_else(|| imports.guess(&name))
            && let Some(names) = imports.0.get_mut(&library)
        {
            names.entry(version).or_default().insert(name);
        }
    }
    imports.0.values_mut().for_each(give_versions);
    Ok(imports)
}

/// Puts names without a version under one if there is any: linkers refuse to mix them, and whoever
/// wants no version is served by every.
fn give_versions(names: &mut Names) {
    if names.keys().any(|version| !version.is_empty())
        && let Some(plain) = names.remove("")
        && let Some(mut first) = names.first_entry()
    {
        first.get_mut().extend(plain);
    }
}

impl Imports {
    /// The library that a name without a version must come from.
    fn guess(&self, name: &str) -> Option<String> {
        let (_, begin) = UNVERSIONED.iter().find(|(begin, _)| name.starts_with(begin))?;
        self.0.keys().find(|library| library.starts_with(begin)).cloned()
    }
}

fn is_stubbed(library: &str) -> bool {
    let begins = |begin: &&str| library.starts_with(begin);
    NVIDIAS.iter().any(begins) && !SIMULATED.iter().any(begins)
}

/// A symbol that a library lacks.
struct Wanted {
    name: String,
    /// Empty if it has none.
    version: String,
    library: Option<String>,
}

/// The libraries that one needs, and the symbols it lacks.
fn read_library(file: &Path) -> Result<(Vec<String>, Vec<Wanted>)> {
    let cache = ReadCache::new(File::open(file)?);
    let elf = ElfFile::<FileHeader64<Endianness>, _>::parse(&cache)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let table = elf.elf_dynamic_table()?;
    let mut needed = Vec::new();
    for entry in &table {
        if entry.tag == DT_NEEDED {
            needed.push(text(table.string(entry)?));
        }
    }
    Ok((needed, undefined(&elf)?))
}

fn undefined<'data, R: ReadRef<'data>>(
    elf: &ElfFile<'data, FileHeader64<Endianness>, R>,
) -> Result<Vec<Wanted>> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let endian = elf.endian();
    let versions = elf.elf_section_table().versions(endian, elf.data())?;
    let symbols = elf.elf_dynamic_symbol_table();
    let mut wanted = Vec::new();
    for (at, symbol) in symbols.iter().enumerate() {
        let name = text(symbols.symbol_name(endian, symbol)?);
        if symbol.st_shndx(endian) != SHN_UNDEF || name.is_empty() {
            continue;
        }
        let version = match &versions {
            Some(table) => table.version(table.version_index(endian, SymbolIndex(at)).index())?,
            None => None,
        };
        wanted.push(Wanted {
            name,
            version: version.map(|version| text(version.name())).unwrap_or_default(),
            library: version.and_then(|version| version.file()).map(text),
        });
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[(&str, &str)]) -> Names {
        let mut names = Names::new();
        for (version, name) in list {
            names.entry((*version).to_owned()).or_default().insert((*name).to_owned());
        }
        names
    }

    #[test]
    fn simulated_and_foreign_libraries_get_no_stub() {
        assert!(is_stubbed("libcublas.so.13"));
        assert!(is_stubbed("libnccl.so.2"));
        assert!(!is_stubbed("libcuda.so.1"));
        assert!(!is_stubbed("libcudart.so.13"));
        assert!(!is_stubbed("libc10_cuda.so"));
    }

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

    #[test]
    fn names_with_and_without_versions_are_not_mixed() {
        let mut mixed = names(&[("", "nvshmem_init"), ("NVSHMEM", "nvshmem_ptr")]);
        give_versions(&mut mixed);
        assert_eq!(mixed, names(&[("NVSHMEM", "nvshmem_init"), ("NVSHMEM", "nvshmem_ptr")]));
        let mut plain = names(&[("", "ncclSend")]);
        give_versions(&mut plain);
        assert_eq!(plain, names(&[("", "ncclSend")]));
    }

    #[test]
    fn a_name_without_version_is_looked_for_where_it_must_be() {
        let mut imports = Imports::default();
        imports.0.insert("libnccl.so.2".into(), Names::new());
        assert_eq!(imports.guess("ncclSend").as_deref(), Some("libnccl.so.2"));
        assert_eq!(imports.guess("cuFileRead"), None);
    }
}
