//! Code that two packages must each have: none may depend on the other, so the two stay the same.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;

/// The class that finds PyTorch for the program, and the hook's owner with it.
fn finder(package: &str) -> String {
    let text = fs::read_to_string(common::root().join(package).join("_hook.py")).unwrap();
    let (_, from) = text.split_once("class _Finder:").unwrap();
    let (finder, _) = from.split_once("class _Loader:").unwrap();
    finder.to_owned()
}

#[test]
fn both_packages_find_pytorch_in_the_same_way() {
    assert_eq!(finder("python/drystone"), finder("python-sim/drystone_sim"));
}
