//! The integers of pickles.
//!
//! Invariant: an integer is exact or an error; 64 bits, signed or unsigned, are enough.

use crate::codec::error::Problem;
use crate::codec::graph::Node;

/// A two's complement integer, little-endian, of any length.
pub(super) fn long(bytes: &[u8]) -> Result<Node, Problem> {
    let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let (low, high) = bytes.split_at(bytes.len().min(16));
    if high.iter().any(|byte| *byte != fill) {
        return Err(Problem::PickleNumber);
    }
    let mut wide = [fill; 16];
    wide[..low.len()].copy_from_slice(low);
    integer(i128::from_le_bytes(wide))
}

/// A decimal integer.
pub(super) fn decimal(digits: &[u8]) -> Result<Node, Problem> {
    let text = std::str::from_utf8(digits).map_err(|_| Problem::PickleNumber)?;
    integer(text.parse().map_err(|_| Problem::PickleNumber)?)
}

fn integer(value: i128) -> Result<Node, Problem> {
    match (i64::try_from(value), u64::try_from(value)) {
        (Ok(value), _) => Ok(Node::Int(value)),
        (_, Ok(value)) => Ok(Node::Unsigned(value)),
        _ => Err(Problem::PickleNumber),
    }
}
