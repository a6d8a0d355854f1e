//! Sizes as people write them: for the command's options and for the simulated libraries' settings.

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
    use super::parse_bytes;

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
