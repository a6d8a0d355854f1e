//! NVIDIA's packages, as far as pip is to know of them.
//!
//! A PyTorch's wheel requires them, and the simulated libraries stand in for them. Without a record
//! of each, `pip install` of whatever needs PyTorch would fetch them all and overwrite what stands
//! there. Keeps: a package that is installed is left alone.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::files::write_if_changed;

/// A package that a wheel requires, at the version that it names.
#[derive(Debug, PartialEq, Eq)]
struct Required {
    name: String,
    version: String,
    extras: Vec<String>,
}

/// Notes for pip that what a PyTorch requires of NVIDIA's is installed.
pub fn declare(packages: &Path) -> Result<()> {
    let wheel = records(packages, "torch")?.pop().context("PyTorch is not installed")?;
    let metadata = fs::read_to_string(wheel.join("METADATA")).context("read what it requires")?;
    for required in metadata.lines().filter_map(required) {
        let file_name = required.name.replace('-', "_");
        // A package's own record names its files.
        let known = records(packages, &file_name)?;
        if known.iter().any(|folder| folder.join("RECORD").exists()) {
            continue;
        }
        let folder = packages.join(format!("{file_name}-{}.dist-info", required.version));
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let extras: String =
            required.extras.iter().map(|extra| format!("Provides-Extra: {extra}\n")).collect();
        let text = format!(
            "Metadata-Version: 2.1\nName: {}\nVersion: {}\n{extras}\
             Summary: the simulated device stands in for it\n",
            required.name, required.version
        );
        write_if_changed(&folder.join("METADATA"), &text)?;
        write_if_changed(&folder.join("INSTALLER"), "drystone\n")?;
    }
    Ok(())
}

/// The folders in which pip finds what is installed of a package.
fn records(packages: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(packages).with_context(|| format!("read {}", packages.display()))?;
    let start = format!("{name}-");
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let found = names.filter(|entry| entry.starts_with(&start) && entry.ends_with(".dist-info"));
    Ok(found.map(|entry| packages.join(entry)).collect())
}

/// What a line of a wheel's metadata requires, if it is one of NVIDIA's packages.
fn required(line: &str) -> Option<Required> {
    let text = line.strip_prefix("Requires-Dist: ")?.split(';').next()?.trim();
    let at = text.find(['=', '<', '>', '!', '~', '[', ' ', '('])?;
    let name = text[..at].to_owned();
    if !name.starts_with("nvidia-") && !name.starts_with("cuda-") {
        return None;
    }
    let extras = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let extras = extras.map_or_else(Vec::new, |(names, _)| {
        names.split(',').map(|name| name.trim().to_owned()).collect()
    });
    // What is pinned, or the least that is wanted.
    let wanted = text.split_once("==").or_else(|| text.split_once(">="))?.1;
    let version: String =
        wanted.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
    Some(Required { name, version, extras })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nvidias_is_found_with_its_version() {
        let found =
            |line: &str| required(line).map(|one| (one.name, one.version, one.extras.len()));
        let of =
            |name: &str, version: &str, extras| Some((name.to_owned(), version.to_owned(), extras));
        for (line, expected) in [
            (
                "Requires-Dist: nvidia-nccl-cu13==2.28.9; platform_system == \"Linux\"",
                of("nvidia-nccl-cu13", "2.28.9", 0),
            ),
            (
                "Requires-Dist: cuda-toolkit[cublas,nvtx]==13.0.2; platform_system == \"Linux\"",
                of("cuda-toolkit", "13.0.2", 2),
            ),
            (
                "Requires-Dist: cuda-bindings<14,>=13.0.3; platform_system == \"Linux\"",
                of("cuda-bindings", "13.0.3", 0),
            ),
            ("Requires-Dist: triton==3.6.0; platform_system == \"Linux\"", None),
            ("Requires-Dist: filelock", None),
            ("Name: torch", None),
        ] {
            assert_eq!(found(line), expected, "{line}");
        }
    }
}
