//! Libraries that remember what they have registered by its address, also once it is freed: memory
//! behind an address of theirs is not to change.

use std::fs;

/// How their files' names begin, since wheels put a digest between name and ending; Mooncake's
/// stand in a folder.
const NAMES: [&str; 7] = [
    "/libucp",
    "/libnixl",
    "/libfabric",
    "/libmooncake",
    "/mooncake/engine",
    "/mooncake/_store",
    "/libgdrapi",
];

/// Whether one of them is loaded, as the kernel says; what it does not say is taken for one.
pub fn is_loaded() -> bool {
    fs::read_to_string("/proc/self/maps").map_or(true, |maps| names_one(&maps))
}

fn names_one(maps: &str) -> bool {
    NAMES.iter().any(|name| maps.contains(name))
}

#[cfg(test)]
mod tests {
    use super::names_one;

    #[test]
    fn libraries_are_known_by_the_names_that_wheels_give_them() {
        for file in [
            "/nixl_cu13.libs/libucp-b39b3ed9.so.0.0.0",
            "/libucx/lib/libucp.so.0.0.0",
            "/.nixl_cu13.mesonpy.libs/libnixl.so",
            "/mooncake/engine.so",
            "/mooncake/_store.cpython-311-x86_64-linux-gnu.so",
            "/amazon/efa/lib/libfabric.so.1",
        ] {
            let map = format!("7f00-7f01 r-xp 0000 fe:00 7 /usr/lib/python3{file}\n");
            assert!(names_one(&map), "{file}");
        }
        assert!(!names_one("7f00-7f01 r-xp 0000 fe:00 7 /home/mooncake/libc.so.6\n"));
    }
}
