//! The values of a configuration text.
//!
//! Invariant: only what PyTorch would accept, but numbers must be whole decimal digits.

use super::keys::{ConfigError, bad};
use super::tokens::Tokens;

/// One mebibyte, in bytes: the unit of every size key.
pub(super) const MIB: u64 = 1 << 20;
/// How many intervals `roundup_power2_divisions` has: 1 MiB to 64 GiB by powers of two.
pub(in crate::torch) const INTERVALS: usize = 16;

/// A number in decimal digits.
pub(super) fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A size in mebibytes, at least `least` of them, as bytes.
pub(super) fn megabytes(key: &str, value: &str, least: u64) -> Result<u64, ConfigError> {
    let megabytes = number(value).filter(|megabytes| *megabytes >= least);
    let megabytes = megabytes
        .ok_or_else(|| bad(key, value, format!("a whole number of MiB, {least} or more")))?;
    Ok(megabytes.min(u64::MAX / MIB) * MIB)
}

/// A number that passes a test; `expected` says which.
pub(super) fn fraction(
    key: &str,
    value: &str,
    expected: &str,
    is_valid: impl Fn(f64) -> bool,
) -> Result<f64, ConfigError> {
    let part = value.parse().ok().filter(|part| is_valid(*part));
    part.ok_or_else(|| bad(key, value, expected.to_owned()))
}

/// `True` or `False`.
pub(super) fn boolean(key: &str, value: &str) -> Result<bool, ConfigError> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(bad(key, value, "True or False".to_owned())),
    }
}

/// The value of `roundup_power2_divisions`: one number, or `[MiB:number,...,>:number]`.
///
/// Intervals before the first named one take its value, `>` fills those after the last named one;
/// an interval left out in between has no divisions.
pub(super) fn divisions(tokens: &mut Tokens<'_>) -> Result<[u32; INTERVALS], ConfigError> {
    const KEY: &str = "roundup_power2_divisions";
    let division = |value: &str, zero_allowed: bool| {
        let parsed = number(value).and_then(|number| u32::try_from(number).ok());
        parsed
            .filter(|number| number.is_power_of_two() || (*number == 0 && zero_allowed))
            .ok_or_else(|| bad(KEY, value, "a power of two (or 0, in a list)".to_owned()))
    };
    let mut all = [0; INTERVALS];
    if !tokens.skip('[') {
        return Ok([division(tokens.word("a value")?, false)?; INTERVALS]);
    }
    let mut last = None;
    while !tokens.skip(']') {
        let size = tokens.word("a size in MiB or >")?;
        tokens.expect(':')?;
        let value = division(tokens.word("a value")?, true)?;
        if size == ">" {
            all[last.unwrap_or(0) + 1..].fill(value);
        } else {
            let size = number(size)
                .filter(|size| size.is_power_of_two())
                .ok_or_else(|| bad(KEY, size, "sizes that are powers of two, in MiB".to_owned()))?;
            let index = (size.ilog2() as usize).min(INTERVALS - 1);
            if last.is_none() {
                all[..index].fill(value);
            }
            all[index] = value;
            last = Some(index);
        }
        if !tokens.skip(',') {
            tokens.expect(']')?;
            break;
        }
    }
    Ok(all)
}
