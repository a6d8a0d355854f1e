//! Sizes and other numbers as people write and read them: `20GiB`, `1.50 MiB`.
//!
//! The standard library's conversions of numbers with a point are exact for every number there is,
//! which makes them 30 KB of a shared library; sizes and fractions need far less. Invariant: what
//! has at most 15 digits, and sizes up to 2^53 bytes, come out as the standard library has them.

use std::fmt;

/// Names of the binary units, each 1024 times the one before.
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
/// Names of the powers of 1000.
const DECIMAL_UNITS: [&str; 5] = ["b", "kb", "mb", "gb", "tb"];

/// Text that is no size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSizeError {
    /// No number stands before the unit.
    #[error("'{0}' is not a size; sizes look like `24GiB`")]
    NotASize(String),
    /// There is no such unit.
    #[error("unknown unit '{0}': use B, KiB, MiB, GiB, TiB, KB, MB, GB or TB")]
    UnknownUnit(String),
    /// It is 2^64 bytes or more.
    #[error("'{0}' is too large: less than 16 EiB can be addressed")]
    TooLarge(String),
}

/// Reads a size: plain bytes, or with a unit (`24GiB`, `24G`; `24GB` for powers of 1000), in any
/// case. Parts of a byte are dropped.
///
/// # Errors
/// The text is no size, or it is 2^64 bytes or more.
pub fn parse_size(text: &str) -> Result<u64, ParseSizeError> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale =
        scale_of(unit.trim()).ok_or_else(|| ParseSizeError::UnknownUnit(unit.trim().to_owned()))?;
    let too_large = || ParseSizeError::TooLarge(text.to_owned());
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(too_large);
    }
    let value = parse_number(number).ok_or_else(|| ParseSizeError::NotASize(text.to_owned()))?;
    let bytes = value * scale as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(too_large()) }
}

/// Bytes in a unit.
fn scale_of(unit: &str) -> Option<u64> {
    let is_it = |name: &str| name.eq_ignore_ascii_case(unit);
    let binary = UNITS.iter().take(5).position(|name| is_it(name) || is_it(&name[..1]));
    let power = |at: usize| u32::try_from(at).ok();
    match binary.or(unit.is_empty().then_some(0)) {
        Some(at) => Some(1024_u64.pow(power(at)?)),
        None => Some(1000_u64.pow(power(DECIMAL_UNITS.iter().position(|name| is_it(name))?)?)),
    }
}

/// The largest binary unit that is not above a size, and the power of two that it is.
pub fn unit_of(bytes: u64) -> (&'static str, u32) {
    let step = bytes.checked_ilog2().unwrap_or(0) / 10;
    (UNITS[step as usize], step * 10)
}

/// A size with two decimals in its largest unit up to TiB: `1.50 MiB`.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match unit_of(self.0.min((1 << 50) - 1)) {
            (_, 0) => write!(f, "{} bytes", self.0),
            (unit, shift) => write!(f, "{} {unit}", Hundredths { number: self.0, shift }),
        }
    }
}

/// A number such as `0.5`, `.5` or `5e-1`. `None` if it is none, or negative.
pub fn parse_number(text: &str) -> Option<f64> {
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
    fn sizes_are_read_with_any_unit() {
        assert_eq!(parse_size("17179869184"), Ok(16 << 30));
        assert_eq!(parse_size("24GiB"), Ok(24 << 30));
        assert_eq!(parse_size(" 1.5 g "), Ok(3 << 29));
        assert_eq!(parse_size("2MB"), Ok(2_000_000));
        assert_eq!((parse_size("7b"), parse_size("0.1")), (Ok(7), Ok(0)));
        let bad = ["", "GiB", "1.2.3", "-4", "5 zlotys", "99999999999999999999", "1e999T", "2PiB"];
        for bad in bad.into_iter().chain(["99999999999GiB", "20000000.5TiB"]) {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_written_in_their_largest_unit() {
        let written = [0, 1023, 1024, 3 << 19, (1 << 30) - 1, 6 << 40, 1 << 50].map(Bytes);
        let expected = [
            "0 bytes",
            "1023 bytes",
            "1.00 KiB",
            "1.50 MiB",
            "1024.00 MiB",
            "6.00 TiB",
            "1024.00 TiB",
        ];
        assert_eq!(written.map(|size| size.to_string()), expected);
        assert_eq!((unit_of(0), unit_of(u64::MAX)), (("B", 0), ("EiB", 60)));
    }

    #[test]
    fn numbers_are_read_as_the_standard_library_reads_them() {
        let texts = ["0", "1", "0.5", ".5", "5.", "+0.25", "1e-1", "2.5E+3", "0.1", "0.333333333"];
        let more = ["123456789012345", "0.000000000000001", "1e22", "1e-22", "00012.50", "0e999"];
        for text in texts.into_iter().chain(more) {
            assert_eq!(parse_number(text), text.parse().ok(), "{text}");
        }
        for number in 0..2_000_u32 {
            let text = format!("{}.{:04}", number / 97, number * 7919 % 10_000);
            assert_eq!(parse_number(&text), text.parse().ok(), "{text}");
        }
        let close = parse_number("0.12345678901234567890123456789").unwrap();
        assert!((close - 0.123_456_789_012_345_68).abs() < 1e-15);
        for text in ["", ".", "+", "-1", "1.2.3", "e5", "1e", "1e5.5", "inf", "nan", "0x1", "1 "] {
            assert_eq!(parse_number(text), None, "{text}");
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
