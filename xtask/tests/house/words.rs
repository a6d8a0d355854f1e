//! The house rule of words: one for one thing.

use super::{THIS, check_lines, files};

/// Words that the glossary has another word for, with that word. A `*` stands for any ending.
const WORDS: [(&str, &str); 20] = [
    ("arena*", "pool"),
    ("astray", "stale"),
    ("berth*", "window"),
    ("chunk", "block, segment or granule"),
    ("contestant*", "candidate"),
    ("harvest*", "remap"),
    ("hollow*", "unmapped"),
    ("ledger*", "async pools"),
    ("lend", "remap"),
    ("lender*", "donor"),
    ("lending", "remap"),
    ("lends", "remaps"),
    ("lent", "remapped"),
    ("loan*", "remap"),
    ("readiness", "stream order"),
    ("slab*", "segment"),
    ("superblock*", "segment"),
    ("supplier*", "memory provider"),
    ("victim*", "donor, or candidate for eviction"),
    ("zombie*", "unmapped"),
];
/// Names that stay: fields of what programs read, and names of others.
const NAMES: [&str; 7] = [
    "chunk_by",
    "ORT_ARENA_ALLOCATOR",
    "OrtArenaCfg",
    "arena_extend_strategy",
    "harvested_granules",
    "lent_granules",
    "first_chunk",
];

/// The words of a line in lower case: `SegmentKind` and `segment_kind` are two each.
fn words(line: &str) -> Vec<String> {
    let mut apart = String::new();
    for c in line.chars() {
        apart.extend((c.is_uppercase() && apart.ends_with(char::is_lowercase)).then_some(' '));
        apart.push(c);
    }
    let words = apart.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

fn is_meant(pattern: &str, word: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => word.starts_with(beginning),
        None => word == pattern,
    }
}

#[test]
fn words_are_those_of_the_glossary() {
    let mut files = files(&["rs", "md", "py", "h", "c", "cpp", "js", "css", "html"]);
    assert!(files.len() > 100, "found {} files only", files.len());
    files.retain(|path, _| !path.starts_with(THIS));
    check_lines("words", &files, |_, line| {
        let line = NAMES.iter().fold(line.to_owned(), |line, name| line.replace(name, ""));
        let instead = |word: String| {
            let (_, instead) = WORDS.iter().find(|(pattern, _)| is_meant(pattern, &word))?;
            Some(format!("{word}; say {instead}"))
        };
        words(&line).into_iter().filter_map(instead).collect::<Vec<_>>()
    });
}

#[test]
fn words_are_found_in_names_of_every_form() {
    assert_eq!(words("a BerthOf x_lent,HOME"), ["a", "berth", "of", "x", "lent", "home"]);
    assert!(is_meant("berth*", "berths") && is_meant("lent", "lent") && !is_meant("lent", "lento"));
}
