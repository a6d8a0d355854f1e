//! What a program came to, and whether it is better or worse than something else.
//!
//! A figure is a number and what it counts, `52.00 GiB`, `2 refused`, `17k tokens`; or words; or a
//! verdict and the MiB that were held, `pass 352`.

use std::cmp::Ordering;

/// Of a program that did not live to say anything.
pub const ENDS: &str = "process ends";
/// Of one that ended otherwise, and did not say what it came to.
pub const FAILS: &str = "fails";
/// Of these more is better, of all else less.
const MORE_IS_BETTER: &str = "tokens";
/// Of one that is judged.
const PASS: &str = "pass ";
const FAIL: &str = "fail ";
/// Of programs that do not run under an allocator, or show nothing there.
const LEFT_OUT: [&str; 2] = ["no pools", "not modelled"];
/// How much worse than the best is still near it.
const NEAR: f64 = 0.05;

/// How a figure compares with another one before it, if that is not the same: less is better, and
/// greater is worse, as is what cannot be compared.
pub fn change(before: &str, after: &str) -> Option<Ordering> {
    // What is held by one that fails says nothing.
    if before == after || before.starts_with(FAIL) && after.starts_with(FAIL) {
        return None;
    }
    let failed = before == FAILS || before.starts_with(FAIL);
    let goes_on = before == ENDS || failed && after.starts_with(PASS);
    let is_better = match (number(before), number(after)) {
        (Some((was, counted)), Some((is, unit))) if counted == unit => is_better(unit, is, was),
        _ => false,
    };
    Some(if goes_on || is_better { Ordering::Less } else { Ordering::Greater })
}

/// Whether a figure is the best that there could be, or near it; none where it says that the
/// program does not run there.
pub fn is_at_best(best: &str, figure: &str) -> Option<bool> {
    if LEFT_OUT.contains(&figure) {
        return None;
    }
    if figure.starts_with(PASS) || figure.starts_with(FAIL) || figure == FAILS {
        return Some(figure.starts_with(PASS));
    }
    let (Some((best, counted)), Some((is, unit))) = (number(best), number(figure)) else {
        return Some(best == figure);
    };
    let least = if unit == MORE_IS_BETTER { best * (1.0 - NEAR) } else { best * (1.0 + NEAR) };
    Some(counted == unit && !is_better(unit, least, is))
}

fn is_better(unit: &str, one: f64, other: f64) -> bool {
    if unit == MORE_IS_BETTER { one > other } else { one < other }
}

/// The number of a figure, and what it counts.
fn number(figure: &str) -> Option<(f64, &str)> {
    let (number, unit) = match figure.strip_prefix(PASS) {
        Some(held) => (held, "MiB"),
        None => figure.split_once(' ')?,
    };
    let factor = if number.ends_with('k') { 1e3 } else { 1.0 };
    Some((number.trim_end_matches('k').parse::<f64>().ok()? * factor, unit))
}
