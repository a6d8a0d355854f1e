//! [`HostMemory`]: what the host can give, for devices that have no memory of their own.
//!
//! There `cuMemGetInfo` says what the kernel calls `MemFree`, which counts the page cache as used,
//! though the kernel gives that up for whoever asks (unslothai/unsloth#10705 has figures of a
//! GB10). `MemAvailable` counts it as free; a control group may allow the process less.
//!
//! Only files are read: no call of the driver is made, so a capture has nothing against it. What
//! cannot be read limits nothing.

use std::fs;
use std::path::{Path, PathBuf};

/// Names the folder below which `proc` and `sys` of the host are, if not `/`.
const ROOT: &str = "DRYSTONE_HOST_ROOT";

/// The files that tell.
#[derive(Debug)]
pub(crate) struct HostMemory {
    meminfo: PathBuf,
    groups: Vec<Group>,
}

/// A control group that the process is in, or one above it.
#[derive(Debug)]
struct Group {
    folder: PathBuf,
    names: Names,
}

/// What the files of a group are called.
#[derive(Clone, Copy, Debug)]
struct Names {
    limit: &'static str,
    used: &'static str,
    /// Lines of `memory.stat` with pages of files, which the kernel gives up.
    files: [&'static str; 2],
}

const V2: Names =
    Names { limit: "memory.max", used: "memory.current", files: ["inactive_file", "active_file"] };
const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    files: ["total_inactive_file", "total_active_file"],
};

impl HostMemory {
    /// That of this machine, or of another root that the environment names.
    pub(crate) fn of_environment() -> Self {
        Self::below(Path::new(&std::env::var_os(ROOT).unwrap_or_else(|| "/".into())))
    }

    fn below(root: &Path) -> Self {
        let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let (v2, v1) = (root.join("sys/fs/cgroup"), root.join("sys/fs/cgroup/memory"));
        let groups = own.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            match controllers {
                "" => Some(with_those_above(&v2, path, V2)),
                _ if controllers.split(',').any(|one| one == "memory") => {
                    Some(with_those_above(&v1, path, V1))
                }
                _ => None,
            }
        });
        Self { meminfo: root.join("proc/meminfo"), groups: groups.flatten().collect() }
    }

    /// What the process can be given; `None` if the host does not say.
    pub(crate) fn available_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(&self.meminfo).ok()?;
        let host_bytes = number_after(&text, "MemAvailable:")?.checked_mul(1024)?;
        let allowed = self.groups.iter().filter_map(Group::left_bytes);
        Some(allowed.fold(host_bytes, u64::min))
    }
}

/// The groups on a path, as far as there are any. In a container the path may be one of the host,
/// where the container's own group stands at the top.
fn with_those_above(top: &Path, path: &str, names: Names) -> Vec<Group> {
    let path = Path::new(path.trim_start_matches('/'));
    let folders = path.ancestors().map(|part| top.join(part));
    let has_limit = |folder: &PathBuf| folder.join(names.limit).exists();
    folders.filter(has_limit).map(|folder| Group { folder, names }).collect()
}

impl Group {
    /// What is left of the group's limit; `None` without one.
    fn left_bytes(&self) -> Option<u64> {
        let read = |name| fs::read_to_string(self.folder.join(name)).ok();
        // Of version 2 the text is `max` where there is none.
        let limit_bytes: u64 = read(self.names.limit)?.trim().parse().ok()?;
        let used_bytes: u64 = read(self.names.used)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let files = self.names.files.iter().filter_map(|name| number_after(&stat, name));
        let held_bytes = files.fold(used_bytes, u64::saturating_sub);
        Some(limit_bytes.saturating_sub(held_bytes))
    }
}

/// The number that stands behind a word at the beginning of a line.
fn number_after(text: &str, word: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == word).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, HostMemory) {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let memory = HostMemory::below(root.path());
        (root, memory)
    }

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:       8000 kB\nMemFree:        1000 kB\nMemAvailable:   5000 kB\n",
    );

    #[test]
    fn page_cache_is_free_and_what_is_not_said_is_not_guessed() {
        assert_eq!(host(&[MEMINFO]).1.available_bytes(), Some(5000 << 10));
        assert_eq!(host(&[]).1.available_bytes(), None);
        let old = ("proc/meminfo", "MemTotal: 8000 kB\nMemFree: 1000 kB\n");
        assert_eq!(host(&[old]).1.available_bytes(), None, "a kernel before 3.14");
        let odd = ("proc/meminfo", "MemAvailable: 99999999999999999999 kB\n");
        assert_eq!(host(&[odd]).1.available_bytes(), None);
        // It is read at each question.
        let (root, memory) = host(&[MEMINFO]);
        fs::write(root.path().join("proc/meminfo"), "MemAvailable: 7 kB\n").unwrap();
        assert_eq!(memory.available_bytes(), Some(7 << 10));
    }

    #[test]
    fn the_tightest_group_counts_without_pages_of_files() {
        let (_root, memory) = host(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "3000000\n"),
            ("sys/fs/cgroup/a/memory.current", "2500000\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 400000\nactive_file 100000\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "9\n"),
        ]);
        assert_eq!(memory.available_bytes(), Some(1_000_000));
    }

    #[test]
    fn groups_of_version_one_and_of_containers_are_found() {
        let v1 = [
            MEMINFO,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/77\n0::/x\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1900000\n"),
            ("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 300000\n"),
        ];
        assert_eq!(host(&v1).1.available_bytes(), Some(400_000));
        // No limit is one beyond any machine.
        let none = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        let files: Vec<_> =
            v1.into_iter().filter(|(name, _)| *name != none.0).chain([none]).collect();
        assert_eq!(host(&files).1.available_bytes(), Some(5000 << 10));
    }
}
