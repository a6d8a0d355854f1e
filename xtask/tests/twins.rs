//! Code that two packages must each have: none may depend on the other, so the two stay the same.

use std::fs;
use std::path::Path;

/// The class that finds PyTorch for the program, and the hook's owner with it.
fn finder(package: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
    let path = root.join(package).join("_hook.py");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let (_, from) = text.split_once("class _Finder:").expect("the hook has a finder");
    let (finder, _) = from.split_once("class _Loader:").expect("and a loader after it");
    finder.to_owned()
}

#[test]
fn both_packages_find_pytorch_in_the_same_way() {
    assert_eq!(finder("python/drystone"), finder("python-sim/drystone_sim"));
}
