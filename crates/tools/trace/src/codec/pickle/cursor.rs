//! A pickle's bytes, from the first to the last, and the integers among them.
//!
//! Invariants: a length is checked against what is left of the file before it is believed; an
//! integer is exact or an error: 64 bits, signed or unsigned, are enough.

use crate::codec::error::Problem;
use crate::codec::graph::Node;

pub(super) type Step<T = ()> = Result<T, Problem>;

pub(super) struct Cursor<'f> {
    file: &'f [u8],
    at: usize,
}

impl<'f> Cursor<'f> {
    pub(super) fn new(file: &'f [u8]) -> Self {
        Self { file, at: 0 }
    }

    /// Bytes passed so far.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Bytes still to come.
    pub(super) fn left(&self) -> u64 {
        (self.file.len() - self.at) as u64
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Step<u8> {
        let Some(&byte) = self.file.get(self.at) else { return Err(Problem::Truncated) };
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn take(&mut self, len: u64) -> Step<&'f [u8]> {
        let left = &self.file[self.at..];
        let taken = usize::try_from(len).ok().and_then(|len| left.get(..len));
        let taken = taken.ok_or(Problem::Length { claimed: len, left: left.len() as u64 })?;
        self.at += taken.len();
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        let Some(array) = self.file[self.at..].first_chunk() else {
            return Err(Problem::Truncated);
        };
        self.at += N;
        Ok(*array)
    }

    /// A little-endian length of `N` bytes.
    pub(super) fn size<const N: usize>(&mut self) -> Step<u64> {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&self.array::<N>()?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// The text up to the end of the line, as protocol 0 writes its arguments.
    pub(super) fn line(&mut self) -> Step<&'f [u8]> {
        let left = &self.file[self.at..];
        let len = left.iter().position(|byte| *byte == b'\n').ok_or(Problem::Truncated)?;
        self.at += len + 1;
        Ok(&left[..len])
    }
}

/// A two's complement integer, little-endian, of any length.
pub(super) fn long(bytes: &[u8]) -> Step<Node> {
    let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
    let (low, high) = bytes.split_at(bytes.len().min(16));
    if high.iter().any(|byte| *byte != fill) {
        return Err(Problem::PickleNumber);
    }
    let mut wide = [fill; 16];
    wide[..low.len()].copy_from_slice(low);
    integer(i128::from_le_bytes(wide))
}

pub(super) fn decimal(digits: &[u8]) -> Step<Node> {
    let text = std::str::from_utf8(digits).map_err(|_| Problem::PickleNumber)?;
    integer(text.parse().map_err(|_| Problem::PickleNumber)?)
}

fn integer(value: i128) -> Step<Node> {
    match (i64::try_from(value), u64::try_from(value)) {
        (Ok(value), _) => Ok(Node::Int(value)),
        (_, Ok(value)) => Ok(Node::Unsigned(value)),
        _ => Err(Problem::PickleNumber),
    }
}
