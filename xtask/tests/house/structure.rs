//! The house rules of structure: the heap and the page table stay as small as they are, and
//! documents name what exists.
//!
//! The figures are ceilings a little above what is there: whoever makes a type smaller lowers them.

use std::collections::BTreeSet;

use super::{THIS, files, markdown, methods, read, report, rust_files};

/// Methods of `Heap`, and files that hold them.
const HEAP_METHODS_MAX: usize = 78;
const HEAP_FILES_MAX: usize = 11;
/// Methods of the page table that the heap, or a check of it, may call.
const PAGE_TABLE_METHODS_MAX: usize = 24;
/// Words of our own that a reader has to learn, one in a row.
const OWN_WORDS_MAX: usize = 25;
/// What `core/` and `lib/` are short for in `docs/inside/architecture.md`.
const SHORT: [(&str, &str); 2] = [("core/", "crates/core/src/"), ("lib/", "crates/drystone/src/")];

#[test]
fn the_heap_and_what_the_page_table_shows_it_do_not_grow() {
    let heap = methods("crates/core/src/", "Heap");
    let table = methods("crates/core/src/vm/", "PageTable");
    let is_shown = |head: &&String| head.starts_with("pub(crate) ");
    let shown = table.values().flatten().filter(is_shown).count();
    for (what, count, range) in [
        ("methods of the heap", heap.values().map(Vec::len).sum(), 20..=HEAP_METHODS_MAX),
        ("files of them", heap.len(), 2..=HEAP_FILES_MAX),
        ("methods of the page table", shown, 10..=PAGE_TABLE_METHODS_MAX),
    ] {
        assert!(range.contains(&count), "{count} {what}, not {range:?}");
    }
}

#[test]
fn the_glossary_is_short() {
    let text = read("docs/inside/glossary.md");
    let (_, own) = text.split_once("## Words of our own").unwrap();
    // Without the head and the line below it.
    let words = own.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).skip(2);
    let words: Vec<_> = words.collect();
    assert!((10..=OWN_WORDS_MAX).contains(&words.len()), "{} words", words.len());
    let several = words.iter().filter(|word| word.contains([',', ';', '/']));
    report("words in one row", several.map(|word| (*word).to_owned()).collect());
}

/// The paths that a citation stands for: `a/{b,c}.rs` is two.
fn paths(cited: &str) -> Vec<String> {
    let short = SHORT.iter().find(|(short, _)| cited.starts_with(short));
    let cited = short.map_or(cited.to_owned(), |(short, long)| cited.replacen(short, long, 1));
    match cited.split_once('{').and_then(|(a, rest)| Some((a, rest.split_once('}')?))) {
        Some((a, (parts, b))) => parts.split(',').map(|part| format!("{a}{part}{b}")).collect(),
        None => vec![cited],
    }
}

#[test]
fn files_and_functions_that_documents_name_exist() {
    let files_of_all = files(&["rs", "md", "toml", "py", "h", "c"]);
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code = rust_files().into_iter().filter(|(path, _)| !path.starts_with(THIS));
    let code: Vec<String> = code.map(|(_, text)| text).collect();
    let words: BTreeSet<&str> = code.iter().flat_map(|text| text.split(|c| !is_word(c))).collect();
    let mut findings = Vec::new();
    let mut seen = 0;
    for (path, text) in files_of_all.iter().filter(|(path, _)| path.ends_with(".md")) {
        // What was is told there.
        if path == "CHANGELOG.md" {
            continue;
        }
        for (at, cited) in markdown::read(text).cited {
            let is_path = cited.ends_with(".rs") && !cited.contains([' ', '*', '<']);
            let is_name = cited.contains("::") && cited.chars().all(|c| is_word(c) || c == ':');
            seen += usize::from(is_path || is_name);
            let exists = |file: &String| {
                let end = format!("/{file}");
                file.contains("NAME")
                    || files_of_all.keys().any(|known| known == file || known.ends_with(&end))
            };
            let missing = paths(&cited).into_iter().filter(|file| is_path && !exists(file));
            findings.extend(missing.map(|file| format!("{path}:{at}: no file {file}")));
            let parts = cited.split("::").filter(|part| is_name && !part.is_empty());
            let unknown = parts.filter(|part| !words.contains(part));
            findings.extend(unknown.map(|name| format!("{path}:{at}: no {name} ({cited})")));
        }
    }
    assert!(seen > 60, "found {seen} citations only");
    report("citations", findings);
}

#[test]
fn a_citation_with_braces_is_several_files() {
    assert_eq!(paths("core/{a,b}.rs"), ["crates/core/src/a.rs", "crates/core/src/b.rs"]);
}
