//! The house rule that modules use each other one way: no circles.
//!
//! A circle is a group of files each of which uses every other one, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::uses;
use super::{methods, report, rust_files};

type Uses = BTreeMap<String, BTreeSet<String>>;

/// The files of circles, and those between two of them: what is left when each is taken away that
/// uses nothing, or that nothing uses.
fn circles(uses: &Uses) -> BTreeSet<&String> {
    let mut left: BTreeSet<_> = uses.keys().collect();
    loop {
        let uses_one = |file| uses[file].iter().any(|other| left.contains(other));
        let is_used = |file| left.iter().any(|other| uses[*other].contains(file));
        let kept: BTreeSet<_> =
            left.iter().copied().filter(|file| uses_one(*file) && is_used(*file)).collect();
        if kept.len() == left.len() {
            return kept;
        }
        left = kept;
    }
}

#[test]
fn files_of_the_heap_call_each_other_one_way() {
    let heads = methods("crates/core/src/", "Heap");
    let texts = rust_files();
    let name = |head: &String| {
        let (_, rest) = head.split_once("fn ").unwrap();
        rest.split(|c: char| c != '_' && !c.is_alphanumeric()).next().unwrap().to_owned()
    };
    let called_by = |file: &String| {
        let is_called = |head| texts[file].contains(&format!("self.{}(", name(head)));
        let others = heads.iter().filter(|(other, _)| *other != file);
        let called = others.filter(|(_, heads)| heads.iter().any(is_called));
        (file.clone(), called.map(|(other, _)| other.clone()).collect())
    };
    let calls: Uses = heads.keys().map(called_by).collect();
    let found = calls.values().map(BTreeSet::len).sum::<usize>();
    assert!(found > 10, "found {found} calls from file to file only");
    let circle = circles(&calls);
    assert!(circle.is_empty(), "{circle:?} call each other");
}

#[test]
fn rust_modules_use_each_other_one_way() {
    let files = rust_files();
    let roots =
        files.keys().filter(|file| file.ends_with("src/lib.rs") || file.ends_with("src/main.rs"));
    let uses = roots.map(|root| uses(&files, root));
    let findings =
        uses.filter(|uses| !circles(uses).is_empty()).map(|uses| format!("{:?}", circles(&uses)));
    report("circles of modules", findings.collect());
}

#[test]
fn a_use_counts_for_the_file_that_defines_the_name() {
    let texts = [
        ("src/lib.rs", "mod a;\nmod b;\npub use a::A;\npub const ROOT: u8 = 0;\n"),
        (
            "src/a.rs",
            "use crate::ROOT;\npub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }",
        ),
        ("src/b/mod.rs", "mod inner;\npub use inner::B;\n// use crate::a::A;\n"),
        ("src/b/inner.rs", "pub struct B(crate::A);\nconst TEXT: &str = \"use crate::ROOT;\";"),
    ];
    let files = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
    let mut files: BTreeMap<String, String> = texts.iter().map(files).collect();
    let found = uses(&files, "src/lib.rs");
    let found_of = |file: &str| found[file].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(found_of("src/lib.rs"), [""; 0]);
    assert_eq!(found_of("src/a.rs"), ["src/lib.rs"]);
    assert_eq!(found_of("src/b/mod.rs"), [""; 0]);
    assert_eq!(found_of("src/b/inner.rs"), ["src/a.rs"]);
    assert!(circles(&found).is_empty());
    files.get_mut("src/a.rs").unwrap().push_str("use super::b;\nfn b_of(b: b::B) {}\n");
    let expected = ["src/a.rs", "src/b/inner.rs"].map(str::to_owned);
    assert_eq!(circles(&uses(&files, "src/lib.rs")), expected.iter().collect());
    // A name that a file passes on and takes itself is a use of it.
    files.get_mut("src/lib.rs").unwrap().push_str("fn a_of(a: A) {}\n");
    assert_eq!(circles(&uses(&files, "src/lib.rs")).len(), 3);
}
