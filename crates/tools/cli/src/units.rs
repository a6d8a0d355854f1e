//! How figures are written and read: binary units for memory, thin grouping for counts.
//!
//! Invariant: what is printed keeps three or four significant digits, so that columns compare at a
//! glance; exact figures are in `--json`.

/// Names of the binary units, each 1024 times the one before.
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Groups of three digits are set apart by a thin space.
const THIN_SPACE: char = '\u{2009}';

/// The largest unit not above `value`, and its bytes.
pub fn unit_of(value: u64) -> (&'static str, f64) {
    let mut scale = 1.0;
    let mut unit = 0;
    while value as f64 >= scale * 1024.0 && unit + 1 < UNITS.len() {
        scale *= 1024.0;
        unit += 1;
    }
    (UNITS[unit], scale)
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

/// Reads a size: plain bytes, or with a unit (`24GiB`, `24G`, `24GB` for powers of 1000).
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = scale_of(unit.trim()).ok_or_else(|| {
        format!("unknown unit '{}': use B, KiB, MiB, GiB, TiB, KB, MB, GB or TB", unit.trim())
    })?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale).ok_or_else(|| format!("'{text}' is too large"));
    }
    let value: f64 = number.parse().map_err(|_| format!("'{text}' is not a size"))?;
    let scaled = value * scale as f64;
    if scaled < u64::MAX as f64 { Ok(scaled as u64) } else { Err(format!("'{text}' is too large")) }
}

/// Bytes in a unit, in any case.
fn scale_of(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, duration_us, parse_bytes, ratio, round_bytes};

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

    #[test]
    fn sizes_are_read_with_any_unit() {
        assert_eq!(parse_bytes("17179869184"), Ok(16 << 30));
        assert_eq!(parse_bytes("24GiB"), Ok(24 << 30));
        assert_eq!(parse_bytes(" 1.5 g "), Ok(3 << 29));
        assert_eq!(parse_bytes("2MB"), Ok(2_000_000));
        for bad in ["", "GiB", "1.2.3", "-4", "5 zlotys", "99999999999999999999", "1e999T"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
