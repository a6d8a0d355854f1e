//! The escaped texts of pickle protocol 0.
//!
//! Invariant: the result is no longer than its source.

use crate::codec::error::Problem;

/// What UNICODE carries: Latin-1 with `\uXXXX` and `\UXXXXXXXX`. Returns UTF-8; a lone surrogate
/// becomes the replacement character.
pub(super) fn unescape_unicode(line: &[u8]) -> Result<Vec<u8>, Problem> {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let [first, after @ ..] = rest {
        let digits = match rest {
            [b'\\', b'u', ..] => 4,
            [b'\\', b'U', ..] => 8,
            _ => {
                text.push(char::from(*first));
                rest = after;
                continue;
            }
        };
        let hex = rest.get(2..2 + digits).ok_or(Problem::PickleText)?;
        text.push(char::from_u32(number(hex, 16)?).unwrap_or(char::REPLACEMENT_CHARACTER));
        rest = &rest[2 + digits..];
    }
    Ok(text.into_bytes())
}

/// What STRING carries: a quoted Python literal of bytes.
pub(super) fn unescape_string(line: &[u8]) -> Result<Vec<u8>, Problem> {
    let inner = match line {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        _ => return Err(Problem::PickleText),
    };
    let mut text = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let [first, after @ ..] = rest {
        if *first != b'\\' {
            text.push(*first);
            rest = after;
            continue;
        }
        let [escape, after @ ..] = after else { return Err(Problem::PickleText) };
        rest = after;
        text.push(match escape {
            b'\\' | b'\'' | b'"' => *escape,
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'x' => {
                let hex = rest.get(..2).ok_or(Problem::PickleText)?;
                rest = &rest[2..];
                // Two hexadecimal digits fit.
                number(hex, 16)? as u8
            }
            _ => return Err(Problem::PickleText),
        });
    }
    Ok(text)
}

fn number(digits: &[u8], radix: u32) -> Result<u32, Problem> {
    let all_digits = digits.iter().all(|digit| char::from(*digit).is_digit(radix));
    let text = std::str::from_utf8(digits).ok().filter(|_| all_digits);
    text.and_then(|text| u32::from_str_radix(text, radix).ok()).ok_or(Problem::PickleText)
}
