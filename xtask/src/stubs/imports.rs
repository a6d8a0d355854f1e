//! What a wheel's libraries import from NVIDIA's, read from their symbol tables.
//!
//! A versioned name says which library it comes from; one without is known by how it begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::read::elf::ElfFile64;
use object::{Endianness, ImportFlags, NameOrOrdinal, Object, ReadCache};

use crate::command::files_of;

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
/// What others want that PyTorch does not: extensions of vLLM 0.24.0, which count on PyTorch to
/// have loaded the libraries; and of NVRTC engines of NVIDIA's cuDNN.
const OTHERS: [(&str, &str); 5] = [
    ("libcublas.so", "cublasGetStatusString"),
    ("libcublas.so", "cublasHgemm"),
    ("libcublasLt.so", "cublasLtCreate"),
    ("libcublasLt.so", "cublasLtDestroy"),
    ("libnvrtc.so", "__nvrtcCPEx"),
];
/// Names, each after its version; the empty version is none.
pub type Names = BTreeSet<(String, String)>;

/// What libraries import, by the library they import it from.
pub type Imports = BTreeMap<String, Names>;

/// What the libraries of several wheels import from libraries of NVIDIA's outside them: a stub
/// serves them all.
pub fn read_all(folders: &[PathBuf]) -> Result<Imports> {
    let mut imports = Imports::new();
    // Whom a library needs is known before what it wants of whom.
    let mut wanted = Vec::new();
    for folder in folders {
        for file in files_of(folder, "so")? {
            let read = read_library(&file, &mut imports, &mut wanted);
            read.with_context(|| format!("read the symbols of {}", file.display()))?;
        }
    }
    wanted.into_iter().for_each(|symbol| add(&mut imports, symbol));
    add_others(&mut imports);
    Ok(imports)
}

/// Adds a symbol to its library, if that is stubbed; one without a version to every library that it
/// may come from.
fn add(imports: &mut Imports, (library, version, name): (String, String, String)) {
    let guessed = UNVERSIONED.iter().find(|(begin, _)| name.starts_with(begin));
    let begin = if library.is_empty() { guessed.map(|guess| guess.1) } else { Some(&*library) };
    let Some(begin) = begin else { return };
    for (_, names) in imports.iter_mut().filter(|(library, _)| library.starts_with(begin)) {
        names.insert((version.clone(), name.clone()));
    }
}

/// Notes the libraries that one needs, and the symbols it lacks: each with its library and version,
/// which are empty if it has none.
fn read_library(
    file: &Path,
    imports: &mut Imports,
    wanted: &mut Vec<(String, String, String)>,
) -> Result<()> {
    let cache = ReadCache::new(File::open(file)?);
    let elf = ElfFile64::<Endianness, _>::parse(&cache)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for library in elf.import_libraries()? {
        let library = text(library?.name());
        if is_stubbed(&library) {
            imports.entry(library).or_default();
        }
    }
    for import in elf.imports()? {
        let import = import?;
        if let (NameOrOrdinal::Name(name), ImportFlags::Elf { version, .. }) =
            (import.name(), import.flags())
        {
            let version = text(version.unwrap_or_default());
            wanted.push((text(import.library()), version, text(name)));
        }
    }
    Ok(())
}

/// Puts names without a version under one if there is any: linkers refuse to mix them, and whoever
/// wants no version is served by every.
fn give_versions(names: &mut Names) {
    let Some((version, _)) = names.iter().find(|(version, _)| !version.is_empty()) else { return };
    let version = version.clone();
    let given =
        |(own, name): (String, _)| (if own.is_empty() { version.clone() } else { own }, name);
    *names = std::mem::take(names).into_iter().map(given).collect();
}

/// What more is asked of the libraries that are there.
fn add_others(imports: &mut Imports) {
    for (begin, name) in OTHERS {
        if let Some((_, names)) = imports.iter_mut().find(|(library, _)| library.starts_with(begin))
        {
            names.insert((String::new(), name.to_owned()));
        }
    }
    imports.values_mut().for_each(give_versions);
}

fn is_stubbed(library: &str) -> bool {
    let begins = |begin: &&str| library.starts_with(begin);
    NVIDIAS.iter().any(begins) && !SIMULATED.iter().any(begins)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn names(list: &[(&str, &str)]) -> Names {
        list.iter().map(|(version, name)| ((*version).to_owned(), (*name).to_owned())).collect()
    }

    #[test]
    fn simulated_and_foreign_libraries_get_no_stub() {
        let all = [
            "libcublas.so.13",
            "libnccl.so.2",
            "libcuda.so.1",
            "libcudart.so.13",
            "libc10_cuda.so",
        ];
        assert_eq!(all.map(is_stubbed), [true, true, false, false, false]);
    }

    #[test]
    fn names_with_and_without_versions_are_not_mixed() {
        for (mixed, given) in [
            ([("", "nvshmem_init"), ("NVSHMEM", "nvshmem_ptr")], "NVSHMEM"),
            ([("", "nvshmem_init"), ("", "nvshmem_ptr")], ""),
        ] {
            let mut mixed = names(&mixed);
            give_versions(&mut mixed);
            assert_eq!(mixed, names(&[(given, "nvshmem_init"), (given, "nvshmem_ptr")]));
        }
    }

    #[test]
    fn a_stub_has_what_is_imported_and_what_other_packages_import() {
        let libraries = ["libcublas.so.13", "libnccl.so.2"];
        let mut all: Imports = libraries.map(|one| (one.to_owned(), Names::new())).into();
        for (library, version, name) in [
            ("libcublas.so.13", "v", "cublasSgemm_v2"),
            ("libcublas.so.13", "v", "cublasSetStream_v2"),
            ("libm.so.6", "GLIBC_2.2.5", "exp"),
            // A name without a version goes where it must come from.
            ("", "", "ncclRecv"),
            ("", "", "cuFileRead"),
        ] {
            add(&mut all, (library.to_owned(), version.to_owned(), name.to_owned()));
        }
        add_others(&mut all);
        let of_all =
            ["cublasSgemm_v2", "cublasSetStream_v2", "cublasHgemm"].map(|name| ("v", name));
        assert!(all["libcublas.so.13"].is_superset(&names(&of_all)));
        assert_eq!(all["libnccl.so.2"], names(&[("", "ncclRecv")]));
        assert_eq!(all.len(), 2);
    }
}
