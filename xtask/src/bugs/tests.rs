//! A worse figure is an error, an equal one is not; the page and the programs name each other.

use std::cmp::Ordering::{Greater, Less};
use std::collections::BTreeSet;

use super::figure::{ENDS, FAILS, change, is_at_best};
use super::page::{Page, Row};
use super::{BUGS, MATRIX, Study, differences, setting};
use crate::command::{files_of, sh};

const TEXT: &str = "Text.\n\n| program | at best | a | b | c | d | e | f |\n| --- | --- |\n\
    | `one` | 1.00 GiB | 2.00 GiB | 3.00 GiB | no pools | 1.50 GiB | 1.50 GiB | process ends |\n\
    | `other` | is | no | row |\n";

fn row(came_to: [&str; 6]) -> Row {
    let came_to = came_to.map(str::to_owned).to_vec();
    Row { name: "one".to_owned(), right: "1.00 GiB".to_owned(), came_to }
}

#[test]
fn less_is_better_but_of_tokens_and_what_cannot_be_compared_is_worse() {
    for (before, after, expected) in [
        ("52.00 GiB", "52.00 GiB", None),
        ("52.00 GiB", "52.01 GiB", Some(Greater)),
        ("52.00 GiB", "9.00 GiB", Some(Less)),
        ("0 refused", "1 refused", Some(Greater)),
        ("17k tokens", "9k tokens", Some(Greater)),
        ("9k tokens", "17k tokens", Some(Less)),
        ("goes on", ENDS, Some(Greater)),
        (ENDS, "goes on", Some(Less)),
        (ENDS, ENDS, None),
        ("pass 9", "fail 1", Some(Greater)),
        ("pass 9", ENDS, Some(Greater)),
        ("pass 9", FAILS, Some(Greater)),
        ("fail 1", "pass 9", Some(Less)),
        (ENDS, "pass 9", Some(Less)),
        (FAILS, "pass 9", Some(Less)),
        ("fail 1", "fail 9", None),
        ("pass 9", "pass 10", Some(Greater)),
        ("pass 9", "pass 8", Some(Less)),
        ("1.00 GiB", "0 refused", Some(Greater)),
        ("1.00 GiB", "3 violations", Some(Greater)),
    ] {
        assert_eq!(change(before, after), expected, "{before}, then {after}");
    }
}

#[test]
fn worse_is_an_error_and_better_is_one_of_the_others_alone() {
    let page = Page::read(TEXT).expect("it has one row");
    let before = page.row("one").expect("it is there");
    let errors = |native, compiled, last| {
        let now = row([native, "3.00 GiB", "no pools", compiled, "1.50 GiB", last]);
        let found = differences(&BUGS, before, &now);
        found.iter().map(|one| one.0).collect::<Vec<_>>()
    };
    assert!(errors("2.00 GiB", "1.50 GiB", ENDS).is_empty());
    assert_eq!(errors("2.00 GiB", "1.51 GiB", ENDS), [true]);
    assert_eq!(errors("2.00 GiB", "1.00 GiB", "1.00 GiB"), [false, false]);
    assert_eq!(errors("1.99 GiB", "1.50 GiB", ENDS), [true]);
    let other = Row { right: "2.00 GiB".to_owned(), ..before.clone() };
    assert!(differences(&BUGS, before, &other).iter().any(|one| one.0));
}

#[test]
fn writing_changes_figures_and_nothing_else() {
    let mut page = Page::read(TEXT).expect("it has one row");
    assert_eq!((page.rows().count(), page.text().as_str()), (1, TEXT));
    page.put(row(["2.00 GiB", "3.00 GiB", "no pools", "1.00 GiB", "1.00 GiB", ENDS]));
    assert_eq!(page.text(), TEXT.replace("1.50", "1.00"));
    assert!(Page::read(&TEXT.repeat(2)).is_err());
}

#[test]
fn what_does_not_run_is_not_counted_and_what_is_near_the_best_is() {
    for (best, figure, expected) in [
        ("1.00 GiB", "1.05 GiB", Some(true)),
        ("1.00 GiB", "1.06 GiB", Some(false)),
        ("0 refused", "1 refused", Some(false)),
        ("20k tokens", "17k tokens", Some(false)),
        ("goes on", "goes on", Some(true)),
        ("goes on", ENDS, Some(false)),
        ("1.00 GiB", "no pools", None),
        ("8", "pass 9", Some(true)),
        ("8", "fail 8", Some(false)),
        ("8", FAILS, Some(false)),
    ] {
        assert_eq!(is_at_best(best, figure), expected, "{figure} where {best} is best");
    }
    let head = "| at best, or within 5 per cent of it |";
    let text = Page::read(&format!("{TEXT}{head} ? |\n")).expect("it has one row").text();
    let counted = " 0 of 1 | 0 of 1 | 0 of 0 | 0 of 1 | 0 of 1 | 0 of 1 |\n";
    assert!(text.ends_with(&format!("{head}{counted}")), "{text}");
}

#[test]
fn each_program_has_a_row_a_device_and_its_report_on_the_page() {
    [BUGS, MATRIX].iter().for_each(each_is_told);
}

fn each_is_told(study: &Study) {
    let (folder, name) = (study.folder, study.page);
    let text = sh().read_file(name).expect("read the page");
    let page = Page::read(&text).expect("read its rows");
    assert_eq!(page.text(), text, "it counts its rows wrongly: cargo xtask {folder} --write");
    let listed: BTreeSet<_> = page.rows().map(|row| row.name.clone()).collect();
    let programs = files_of(folder.as_ref(), "py").expect("list the programs");
    let mut there = BTreeSet::new();
    for file in programs.iter().filter(|file| !file.ends_with("common.py")) {
        let program = sh().read_file(file).expect("read a program");
        let shown = file.display();
        assert!(setting(&program, "Device").contains(':'), "{shown} names no device");
        let link = program.lines().find(|line| line.starts_with("https://"));
        let link = link.unwrap_or_else(|| panic!("{shown} names no report"));
        assert!(text.contains(&format!("({link})")), "{name} has no link {link}");
        there.insert(file.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    }
    assert_eq!(there, listed);
    assert!(page.rows().all(|row| row.came_to.len() == study.allocators.len()));
}
