//! How figures are written: binary units for memory, thin grouping for counts.
//!
//! Invariant: what is printed keeps three or four significant digits, so that columns compare at a
//! glance; exact figures are in `--json`.

use drystone_driver::sizes;

/// Groups of three digits are set apart by a thin space.
const THIN_SPACE: char = '\u{2009}';

/// The largest unit not above `value`, and its bytes.
pub fn unit_of(value: u64) -> (&'static str, f64) {
    let (unit, shift) = sizes::unit_of(value);
    (unit, (1_u64 << shift) as f64)
}

/// `12.35 GiB`.
pub fn bytes(value: u64) -> String {
    let (unit, scale) = unit_of(value);
    if scale == 1.0 {
        format!("{value} B")
    } else {
        format!("{} {unit}", digits(value as f64 / scale))
    }
}

/// `512 MiB`, for sizes that are whole units.
pub fn round_bytes(value: u64) -> String {
    let (unit, scale) = unit_of(value);
    format!("{} {unit}", value as f64 / scale)
}

/// `1 234 567`, grouped from five digits on.
pub fn count(value: u64) -> String {
    let plain = value.to_string();
    if plain.len() < 5 {
        return plain;
    }
    let mut grouped = String::with_capacity(plain.len() * 2);
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            grouped.push(THIN_SPACE);
        }
        grouped.push(digit);
    }
    grouped
}

/// `12.3 ms`, from microseconds.
pub fn duration_us(value: f64) -> String {
    match value {
        v if v < 1000.0 => format!("{} us", digits(v)),
        v if v < 1e6 => format!("{} ms", digits(v / 1e3)),
        v => format!("{} s", digits(v / 1e6)),
    }
}

/// `1.0034`: a ratio near one.
pub fn ratio(value: f64) -> String {
    if value < 10.0 { format!("{value:.4}") } else { digits(value) }
}

/// About four significant digits.
fn digits(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        v if v < 10.0 => format!("{v:.3}"),
        v if v < 100.0 => format!("{v:.2}"),
        v => format!("{v:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, duration_us, ratio, round_bytes};

    #[test]
    fn sizes_read_well() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.000 KiB");
        assert_eq!(bytes(11_751_333_904), "10.94 GiB");
        assert_eq!(bytes(500 << 20), "500.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
        assert_eq!(round_bytes(512 << 20), "512 MiB");
    }

    #[test]
    fn counts_are_grouped_from_five_digits() {
        assert_eq!(count(0), "0");
        assert_eq!(count(9999), "9999");
        assert_eq!(count(10_000), "10\u{2009}000");
        assert_eq!(count(1_234_567), "1\u{2009}234\u{2009}567");
    }

    #[test]
    fn times_and_ratios() {
        assert_eq!(duration_us(0.0), "0 us");
        assert_eq!(duration_us(12_345.0), "12.35 ms");
        assert_eq!(duration_us(2.5e6), "2.500 s");
        assert_eq!(ratio(1.00341), "1.0034");
        assert_eq!(ratio(12.0), "12.00");
    }
}
