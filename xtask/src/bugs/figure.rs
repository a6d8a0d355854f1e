//! What a program came to, and whether it is better or worse than something else.
//!
//! A figure is a number and what it counts, `52.00 GiB`, `2 refused`, `17k tokens`; or words; or a
//! verdict and the MiB that were held, `pass 352`.

/// Of a program that did not live to say anything.
pub const ENDS: &str = "process ends";
/// Of one that ended otherwise, and did not say what it came to.
pub const FAILS: &str = "fails";
/// Of these more is better, of all others less.
const MORE_IS_BETTER: [&str; 1] = ["tokens"];

/// Of one that is judged.
const PASS: &str = "pass ";
const FAIL: &str = "fail ";
/// Of programs that do not run under an allocator, or show nothing there.
const LEFT_OUT: [&str; 2] = ["no pools", "not modelled"];
/// How much worse than the best is still near it.
const NEAR: f64 = 0.05;

/// How a figure compares with the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The same.
    None,
    /// Better.
    Better,
    /// Worse, or nothing that could be compared.
    Worse,
}

/// How a figure compares with the one before.
pub fn change(before: &str, after: &str) -> Change {
    if before == after {
        return Change::None;
    }
    // What is held by one that fails says nothing.
    if before.starts_with(FAIL) && after.starts_with(FAIL) {
        return Change::None;
    }
    let failed = [ENDS, FAILS].contains(&before) || before.starts_with(FAIL);
    if before == ENDS || failed && after.starts_with(PASS) {
        return Change::Better;
    }
    let (Some((was, counted)), Some((is, unit))) = (number(before), number(after)) else {
        return Change::Worse;
    };
    let is_better = if MORE_IS_BETTER.contains(&unit) { is > was } else { is < was };
    match counted == unit && is_better {
        true => Change::Better,
        false => Change::Worse,
    }
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
    let is_near = match MORE_IS_BETTER.contains(&unit) {
        true => is >= best * (1.0 - NEAR),
        false => is <= best * (1.0 + NEAR),
    };
    Some(counted == unit && is_near)
}

/// The number of a figure, and what it counts.
fn number(figure: &str) -> Option<(f64, &str)> {
    let (number, unit) = match figure.strip_prefix(PASS) {
        Some(held) => (held, "MiB"),
        None => figure.split_once(' ')?,
    };
    let (number, factor) = match number.strip_suffix('k') {
        Some(thousands) => (thousands, 1e3),
        None => (number, 1.0),
    };
    Some((number.parse::<f64>().ok()? * factor, unit))
}
