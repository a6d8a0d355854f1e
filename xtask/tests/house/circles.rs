//! The house rule that modules use each other one way: no circles.
//!
//! A circle is a group of files each of which uses every other one, directly or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::modules::uses;
use super::{methods, report, root, rust_files, said};

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

/// Prints each module of a package in a folder with each name that it imports from the package.
const PYTHON_IMPORTS: &str = "
import ast, pathlib, sys
for file in pathlib.Path(sys.argv[1]).glob('*.py'):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for name in [node.module] if node.module else [one.name for one in node.names]:
                print(file.stem, name)
";

#[test]
fn python_modules_import_each_other_one_way() {
    let folder = "python/drystone";
    let mut uses = Uses::new();
    for line in said(Command::new("python3").args(["-c", PYTHON_IMPORTS, folder])).lines() {
        let (module, name) = line.split_once(' ').unwrap();
        // What is no module comes from the package's own file.
        let is_module = root().join(folder).join(format!("{name}.py")).exists();
        let imported = if is_module { name } else { "__init__" };
        if imported != module {
            uses.entry(module.to_owned()).or_default().insert(imported.to_owned());
        }
    }
    assert!(uses.len() > 5, "only {uses:?}");
    let mut findings = Vec::new();
    check(&mut findings, folder, &uses);
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
