//! What a wheel's libraries import from NVIDIA's, read from their symbol tables.
//!
//! A versioned name says which library it comes from; one without is known by how it begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use object::elf::{DT_NEEDED, FileHeader64, SHN_UNDEF};
use object::read::ReadCache;
use object::read::elf::{ElfFile, Sym};
use object::{Endianness, SymbolIndex};

use crate::command::sh;

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
#[derive(Default)]
pub struct Imports(pub BTreeMap<String, Names>);

/// What the libraries of several wheels import from libraries of NVIDIA's: a stub serves them all.
pub fn read_all(folders: &[PathBuf]) -> Result<Imports> {
    let mut all = Imports::default();
    for folder in folders {
        all.add(read(folder)?);
    }
    Ok(all)
}

/// What the libraries in a folder import from libraries of NVIDIA's outside it.
fn read(folder: &Path) -> Result<Imports> {
    let mut imports = Imports::default();
    let mut files = sh().read_dir(folder)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "so"));
    // Whom a library needs is known before what it wants of whom.
    let mut wanted = Vec::new();
    for file in &files {
        let (needed, symbols) = read_library(file)
            .with_context(|| format!("read the symbols of {}", file.display()))?;
        let needed = needed.into_iter().filter(|library| is_stubbed(library));
        imports.0.extend(needed.map(|library| (library, Names::new())));
        wanted.extend(symbols);
    }
    for Wanted { name, version, library } in wanted {
        if let Some(library) = library.or_else(|| imports.guess(&name))
            && let Some(names) = imports.0.get_mut(&library)
        {
            names.insert((version, name));
        }
    }
    imports.add_others();
    Ok(imports)
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

impl Imports {
    /// Adds what other libraries import.
    fn add(&mut self, others: Self) {
        for (library, others) in others.0 {
            let names = self.0.entry(library).or_default();
            names.extend(others);
            give_versions(names);
        }
    }

    /// What more is asked of the libraries that are there.
    fn add_others(&mut self) {
        for (begin, name) in OTHERS {
            let found = self.0.iter_mut().find(|(library, _)| library.starts_with(begin));
            if let Some((_, names)) = found {
                names.insert((String::new(), name.to_owned()));
            }
        }
        self.0.values_mut().for_each(give_versions);
    }

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
    let needed = table.iter().filter(|entry| entry.tag == DT_NEEDED);
    let needed = needed.map(|entry| Ok(text(table.string(entry)?))).collect::<Result<_>>()?;
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
    Ok((needed, wanted))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn names(list: &[(&str, &str)]) -> Names {
        list.iter().map(|(version, name)| ((*version).to_owned(), (*name).to_owned())).collect()
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
    fn names_with_and_without_versions_are_not_mixed() {
        let mut mixed = names(&[("", "nvshmem_init"), ("NVSHMEM", "nvshmem_ptr")]);
        give_versions(&mut mixed);
        assert_eq!(mixed, names(&[("NVSHMEM", "nvshmem_init"), ("NVSHMEM", "nvshmem_ptr")]));
        let mut plain = names(&[("", "ncclSend")]);
        give_versions(&mut plain);
        assert_eq!(plain, names(&[("", "ncclSend")]));
    }

    #[test]
    fn a_library_has_what_other_packages_import_of_it() {
        let mut imports = Imports::default();
        imports.0.insert("libcublas.so.13".into(), names(&[("v", "cublasSgemm_v2")]));
        imports.add_others();
        assert!(imports.0["libcublas.so.13"].is_superset(&names(&[("v", "cublasHgemm")])));
        assert_eq!(imports.0.len(), 1);
    }

    #[test]
    fn one_stub_has_what_each_of_several_wheels_imports() {
        let wheel = |library: &str, list| Imports([(library.to_owned(), names(list))].into());
        let mut all = wheel("libcublas.so.13", &[("v", "cublasSgemm_v2")]);
        all.add(wheel("libcublas.so.13", &[("v", "cublasSetStream_v2"), ("", "cublasHgemm")]));
        all.add(wheel("libcublas.so.12", &[("v", "cublasSgemm_v2")]));
        let expected =
            names(&[("v", "cublasSgemm_v2"), ("v", "cublasSetStream_v2"), ("v", "cublasHgemm")]);
        assert_eq!(all.0["libcublas.so.13"], expected);
        assert_eq!(all.0.len(), 2);
    }

    #[test]
    fn a_name_without_version_is_looked_for_where_it_must_be() {
        let mut imports = Imports::default();
        imports.0.insert("libnccl.so.2".into(), Names::new());
        assert_eq!(imports.guess("ncclSend").as_deref(), Some("libnccl.so.2"));
        assert_eq!(imports.guess("cuFileRead"), None);
    }
}
