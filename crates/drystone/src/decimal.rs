//! Numbers with a point, read and written for people. The standard library's conversions are exact
//! for every number there is, which makes them 30 KB of the shared library; sizes and fractions
//! need far less. Invariant: what has at most 15 digits, and sizes up to 2^53 bytes, come out as
//! the standard library has them.

use std::fmt;

/// A number such as `0.5`, `.5` or `5e-1`. `None` if it is none, or negative.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let (digits, mut exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?.clamp(-999, 999)),
        None => (text, 0),
    };
    let digits = digits.strip_prefix('+').unwrap_or(digits);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && part.is_empty() {
        return None;
    }
    let mut mantissa = 0_u64;
    for (at, byte) in whole.bytes().chain(part.bytes()).enumerate() {
        let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
        // What does not fit is below the precision of the result.
        let fits = mantissa < 10_u64.pow(18);
        if fits {
            mantissa = mantissa * 10 + u64::from(digit);
        }
        exponent += i32::from(!fits) - i32::from(at >= whole.len());
    }
    // Beyond there is no number.
    let exponent = exponent.clamp(-308, 308);
    let power = (0..exponent.unsigned_abs()).fold(1.0, |power, _| power * 10.0);
    let mantissa = mantissa as f64;
    Some(if exponent < 0 { mantissa / power } else { mantissa * power })
}

/// A number over a power of two, with two decimals: 3 over 2^1 is `1.50`.
pub struct Hundredths {
    /// The number.
    pub number: u64,
    /// The power: from 1 to 40.
    pub shift: u32,
}

impl fmt::Display for Hundredths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.number >> self.shift;
        let scaled = (self.number - (whole << self.shift)) * 100;
        let (down, half) = (scaled >> self.shift, 1 << (self.shift - 1));
        let rest = scaled - (down << self.shift);
        // To the nearest, and from the middle to the even one.
        let hundredths = down + u64::from(rest > half || (rest == half && down % 2 == 1));
        write!(f, "{}.{:02}", whole + hundredths / 100, hundredths % 100)
    }
}

/// A fraction that was refused, with three decimals.
pub struct Thousandths(pub f64);

impl fmt::Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_nan() {
            return f.write_str("NaN");
        }
        let sign = if self.0 < 0.0 { "-" } else { "" };
        let thousandths = (self.0.abs() * 1000.0) as u64;
        write!(f, "{sign}{}.{:03}", thousandths / 1000, thousandths % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_standard_library_reads_them() {
        let texts = ["0", "1", "0.5", ".5", "5.", "+0.25", "1e-1", "2.5E+3", "0.1", "0.333333333"];
        let more = ["123456789012345", "0.000000000000001", "1e22", "1e-22", "00012.50", "0e999"];
        for text in texts.into_iter().chain(more) {
            assert_eq!(parse(text), text.parse().ok(), "{text}");
        }
        for number in 0..2_000_u32 {
            let text = format!("{}.{:04}", number / 97, number * 7919 % 10_000);
            assert_eq!(parse(&text), text.parse().ok(), "{text}");
        }
        let close = parse("0.12345678901234567890123456789").unwrap();
        assert!((close - 0.123_456_789_012_345_68).abs() < 1e-15);
        for text in ["", ".", "+", "-1", "1.2.3", "e5", "1e", "1e5.5", "inf", "nan", "0x1", "1 "] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_are_written_as_the_standard_library_writes_them() {
        for shift in [10, 20, 30, 40] {
            let unit = 1_u64 << shift;
            let numbers = (0..4_000).map(|at| unit + at * (unit / 800 + at * unit / 7_919));
            for number in numbers.chain([unit, 2 * unit - 1, 1 << 53]) {
                let expected = format!("{:.2}", number as f64 / unit as f64);
                assert_eq!(Hundredths { number, shift }.to_string(), expected, "{number}");
            }
        }
    }

    #[test]
    fn what_was_refused_is_named() {
        let shown = |number| Thousandths(number).to_string();
        assert_eq!((shown(1.5), shown(-1.0)), ("1.500".to_owned(), "-1.000".to_owned()));
        assert_eq!((shown(f64::NAN), shown(0.0)), ("NaN".to_owned(), "0.000".to_owned()));
    }
}
