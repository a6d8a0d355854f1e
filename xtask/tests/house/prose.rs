//! The house rules of sentences: the subject is a noun, a relative clause is rare, a reader of a
//! page for users is addressed, and a common word stands where there is one.
//!
//! Measured, since no linter of a package registry knows these rules: `vale` of PyPI and of npm
//! fetches its program from elsewhere. The limits are those of projects whose pages read well.

use super::markdown::{read, sentences, words};
use super::{THIS, files, report, rust_files};

/// Sentences of pages for users that may open with a clause as subject, of 1,000.
const CLAUSES_MAX: usize = 3;
/// Relative pronouns in 1,000 words of them.
const RELATIVES_MAX: usize = 20;
/// How often a reader is addressed in 1,000 words of them, at least.
const YOU_MIN: usize = 10;

/// Turns of our own in 10,000 words of comments in Rust; lower it as they become fewer.
const COMMENT_TURNS_MAX: usize = 48;

/// Words that open a clause as subject, where the sentence is no question.
const OPENERS: [&str; 8] =
    ["what", "who", "whoever", "whatever", "where", "whose", "which", "whichever"];
const RELATIVES: [&str; 9] =
    ["that", "which", "who", "whom", "whose", "what", "whoever", "whatever", "whichever"];
/// Turns of our own in any document, with what everybody says.
const TURNS: [(&str, &str); 24] = [
    ("as ever", "as before"),
    ("at need", "if need be"),
    ("and its kin", "and the like"),
    ("of ours", "our"),
    ("but for", "except"),
    ("so many", "that many, or a number"),
    ("in the place of", "instead of"),
    ("be had", "be allocated, or available"),
    ("without a word", "unannounced, or silently"),
    ("by the word of", "according to"),
    ("is told", "is reported"),
    ("are told", "are reported"),
    ("told of", "reported"),
    ("tells of", "reports"),
    ("tell of", "report"),
    ("whoever", "the caller, the thread, the library"),
    ("given back", "released"),
    ("give back", "release"),
    ("gives back", "releases"),
    ("gave back", "released"),
    ("let go", "released"),
    ("for ever", "without end"),
    ("hardly", "barely, or nearly no"),
    ("who is asked", "which function is called"),
];

/// A page that people read to use Drystone.
fn is_for_users(path: &str) -> bool {
    let is_use = path.starts_with("docs/use/") || path == "README.md" || path == "docs/README.md";
    is_use && !path.ends_with(".zh.md")
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    sentences: usize,
    clauses: usize,
    words: usize,
    relatives: usize,
    you: usize,
}

impl Count {
    /// Counts a page; every sentence that opens with a clause is a finding.
    fn add(&mut self, path: &str, text: &str, findings: &mut Vec<String>) {
        for (line, piece) in read(text).prose {
            for (sentence, asks) in sentences(&piece) {
                let words = words(&sentence);
                let is_relative = |word: &&String| RELATIVES.contains(&word.as_str());
                self.words += words.len();
                self.you += words.iter().filter(|word| word.starts_with("you")).count();
                self.relatives += words.iter().filter(is_relative).count();
                let is_sentence = words.len() >= 3;
                self.sentences += usize::from(is_sentence);
                if is_sentence && !asks && OPENERS.contains(&words[0].as_str()) {
                    self.clauses += 1;
                    findings.push(format!("{path}:{line}: {sentence}"));
                }
            }
        }
    }
}

#[test]
fn pages_for_users_have_plain_subjects_and_address_the_reader() {
    let mut count = Count::default();
    let mut findings = Vec::new();
    for (path, text) in files(&["md"]).iter().filter(|(path, _)| is_for_users(path)) {
        count.add(path, text, &mut findings);
    }
    println!("{count:?}");
    assert!(count.words > 5_000, "{count:?}");
    if count.clauses * 1000 <= count.sentences * CLAUSES_MAX {
        findings.clear();
    }
    if count.relatives * 1000 > count.words * RELATIVES_MAX {
        findings.push(format!("{} relative pronouns in {} words", count.relatives, count.words));
    }
    if count.you * 1000 < count.words * YOU_MIN {
        findings.push(format!("a reader is addressed {} times in {}", count.you, count.words));
    }
    report("sentences", findings);
}

#[test]
fn documents_say_what_everybody_says() {
    let mut findings = Vec::new();
    let mut seen = 0;
    let is_read = |path: &str| {
        path.starts_with("docs/") || path.ends_with("README.md") || path == "CONTRIBUTING.md"
    };
    for (path, text) in files(&["md"]).iter().filter(|(path, _)| is_read(path)) {
        for (line, piece) in read(text).prose {
            seen += 1;
            let text = format!(" {} ", words(&piece).join(" "));
            let found = TURNS.iter().filter(|(turn, _)| text.contains(&format!(" {turn} ")));
            findings.extend(found.map(|(turn, say)| format!("{path}:{line}: {turn}; say {say}")));
            findings.extend(cleft(&text).map(|cleft| format!("{path}:{line}: {cleft}")));
        }
    }
    assert!(seen > 500, "found {seen} pieces only");
    report("turns", findings);
}

/// Comments in Rust have no more turns of our own than when these were first counted.
#[test]
fn comments_gain_no_turns_of_our_own() {
    let (mut turns, mut all) = (0, 0);
    for (_, text) in rust_files().iter().filter(|(path, _)| !path.starts_with(THIS)) {
        let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
        let words = words(&comments.collect::<Vec<_>>().join(" "));
        all += words.len();
        let text = format!(" {} ", words.join(" "));
        let counts = TURNS.iter().map(|(turn, _)| text.matches(&format!(" {turn} ")).count());
        turns += counts.sum::<usize>();
    }
    println!("{turns} turns in {all} words of comments");
    assert!(all > 100_000, "{all} words of comments only");
    let limit = all * COMMENT_TURNS_MAX / 10_000;
    assert!(turns <= limit, "{turns} turns of our own in comments, {limit} is the most");
}

/// "It is X that": the subject hidden behind a turn. X has three words at most here.
fn cleft(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.windows(6).find(|six| {
        let that = six[3..].iter().any(|word| ["that", "who", "which"].contains(word));
        six[0] == "it" && ["is", "was"].contains(&six[1]) && that
    })?;
    Some(at.join(" "))
}

#[test]
fn rules_of_sentences_find_what_they_are_for() {
    let mut count = Count::default();
    let mut findings = Vec::new();
    let text = "What is cached goes back. What is cached? You see it.\n\n- Who asks, waits for\n  \
                that.\n\n| Where it fits | `What x` runs |\n\n```\nWhat is code\n```\n";
    count.add("page", text, &mut findings);
    let expected = Count { sentences: 5, clauses: 3, words: 21, relatives: 4, you: 1 };
    assert_eq!(count, expected);
    assert_eq!(findings.len(), 3);
    assert!(cleft("it is the heap that decides all").is_some());
    assert!(cleft("it is known at once and that helps").is_none());
}
