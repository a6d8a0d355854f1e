//! The house rule that modules use each other one way: no circles.
//!
//! A circle is a group of files each of which uses every other one, directly or through others.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "circles/modules.rs"]
mod modules;
#[path = "circles/tokens.rs"]
mod tokens;

use common::{methods, report, root, rust_files};
use modules::uses;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

type Uses = BTreeMap<String, BTreeSet<String>>;

/// The largest group of files that all use each other, directly or through others.
fn largest_circle(uses: &Uses) -> Vec<&String> {
    let reached_from = |start| {
        let mut reached = BTreeSet::new();
        let mut open = vec![start];
        while let Some(file) = open.pop() {
            let next = uses.get(file).into_iter().flatten();
            open.extend(next.filter(|file| reached.insert(*file)));
        }
        reached
    };
    let reached: BTreeMap<_, _> = uses.keys().map(|file| (file, reached_from(file))).collect();
    let circles = reached.iter().map(|(file, all)| {
        let leads_back =
            |other: &&&String| reached.get(*other).is_some_and(|all| all.contains(file));
        all.iter().filter(leads_back).copied().collect()
    });
    circles.max_by_key(Vec::len).unwrap_or_default()
}

fn check(findings: &mut Vec<String>, folder: &str, uses: &Uses) {
    let circle = largest_circle(uses);
    if circle.len() > 1 {
        let names = circle
            .iter()
            .map(|file| file.rsplit_once("src/").map_or(file.as_str(), |(_, name)| name));
        let names: Vec<&str> = names.collect();
        findings.push(format!("{folder}: {} files: {}", circle.len(), names.join(" ")));
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
    let mut calls = Uses::new();
    for file in heads.keys() {
        for (other, heads) in heads.iter().filter(|(other, _)| *other != file) {
            let is_called = |head| texts[file].contains(&format!("self.{}(", name(head)));
            if heads.iter().any(is_called) {
                calls.entry(file.clone()).or_default().insert(other.clone());
            }
        }
    }
    let found = calls.values().map(BTreeSet::len).sum::<usize>();
    assert!(found > 10, "found {found} calls from file to file only");
    let circle = largest_circle(&calls);
    assert!(circle.len() <= 1, "{circle:?} call each other");
}

#[test]
fn rust_modules_use_each_other_one_way() {
    let files = rust_files();
    let mut findings = Vec::new();
    for file in files.keys() {
        if let Some(folder) = file.strip_suffix("/src/lib.rs").or(file.strip_suffix("/src/main.rs"))
        {
            check(&mut findings, folder, &uses(&files, file));
        }
    }
    report("circles of modules", findings);
}

/// For each module of a Python package, the modules of the package that it imports.
fn python_uses(folder: &str) -> Uses {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let modules = entries.filter(|path| path.extension().is_some_and(|end| end == "py"));
    let texts: BTreeMap<String, String> = modules
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    assert!(texts.contains_key("__init__"), "{folder} is no package");
    let uses_of = |(name, text): (&String, &String)| {
        let imported = python_imports(text).into_iter().map(|module| {
            // What is no module comes from the package's own file.
            let is_module = texts.contains_key(&module);
            if is_module { module } else { "__init__".to_owned() }
        });
        (name.clone(), imported.filter(|other| other != name).collect())
    };
    texts.iter().map(uses_of).collect()
}

/// What a module imports from its own package: modules, and names of the package itself.
fn python_imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("from .") {
        let before = text[..at].rsplit('\n').next().unwrap_or_default();
        let is_statement = before.trim().is_empty();
        let Some((module, names)) = text[at + 6..].split_once(" import ") else { continue };
        if !is_statement || module.contains(char::is_whitespace) {
            continue;
        }
        let end = if names.starts_with('(') { ')' } else { '\n' };
        let names = names.split(end).next().unwrap_or_default().trim_start_matches('(').split(',');
        match module {
            "" => found
                .extend(names.filter_map(|name| name.split_whitespace().next().map(str::to_owned))),
            module => found.push(module.to_owned()),
        }
    }
    found
}

#[test]
fn python_modules_import_each_other_one_way() {
    let mut findings = Vec::new();
    check(&mut findings, "python/drystone", &python_uses("python/drystone"));
    report("circles of modules", findings);
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
    assert_eq!(largest_circle(&found).len(), 0);
    files.get_mut("src/a.rs").unwrap().push_str("use super::b;\nfn b_of(b: b::B) {}\n");
    assert_eq!(largest_circle(&uses(&files, "src/lib.rs")), ["src/a.rs", "src/b/inner.rs"]);
    // A name that a file passes on and takes itself is a use of it.
    files.get_mut("src/lib.rs").unwrap().push_str("fn a_of(a: A) {}\n");
    assert_eq!(largest_circle(&uses(&files, "src/lib.rs")).len(), 3);
}

#[test]
fn python_imports_are_found_on_one_line_and_on_several() {
    let text = "from ._a import x\nfrom . import _b, _c as c\nfrom ._d import (\n    y,\n)\n\
                from . import (\n    _e,\n    _f,\n)\nif True:\n    from ._g import z\n\
                import os  # not from ._h import z\n";
    assert_eq!(python_imports(text), ["_a", "_b", "_c", "_d", "_e", "_f", "_g"]);
}
