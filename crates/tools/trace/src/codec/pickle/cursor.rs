//! A pickle's bytes, from the first to the last.
//!
//! Invariant: a length is checked against what is left of the file before it is believed.

use crate::codec::error::Problem;

/// What a step through the file gives.
pub(super) type Step<T = ()> = Result<T, Problem>;

/// A place in the file.
pub(super) struct Cursor<'f> {
    file: &'f [u8],
    at: usize,
}

impl<'f> Cursor<'f> {
    /// The beginning of a file.
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

    /// The next byte.
    #[inline]
    pub(super) fn byte(&mut self) -> Step<u8> {
        let Some(&byte) = self.file.get(self.at) else { return Err(Problem::Truncated) };
        self.at += 1;
        Ok(byte)
    }

    /// The next `len` bytes.
    pub(super) fn take(&mut self, len: u64) -> Step<&'f [u8]> {
        let left = &self.file[self.at..];
        let taken = usize::try_from(len).ok().and_then(|len| left.get(..len));
        let taken = taken.ok_or(Problem::Length { claimed: len, left: left.len() as u64 })?;
        self.at += taken.len();
        Ok(taken)
    }

    /// The next `N` bytes.
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
