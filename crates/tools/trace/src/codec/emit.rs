//! What a writer of values offers: pickles and JSON implement it.

use std::io;

use crate::snapshot::StackId;

/// Takes values one after the other; keys come right before their values.
pub(crate) trait Emit {
    fn dict(&mut self) -> io::Result<()>;
    fn list(&mut self) -> io::Result<()>;
    /// Closes the innermost dictionary or list.
    fn end(&mut self) -> io::Result<()>;
    fn key(&mut self, key: &str) -> io::Result<()>;
    fn text(&mut self, text: &str) -> io::Result<()>;
    fn int(&mut self, number: i128) -> io::Result<()>;
    fn float(&mut self, number: f64) -> io::Result<()>;
    fn bool(&mut self, flag: bool) -> io::Result<()>;
    fn null(&mut self) -> io::Result<()>;
    /// Two numbers.
    fn pair(&mut self, pair: (u32, u32)) -> io::Result<()>;

    /// Names the value that was just closed, so that it can be had again. Nothing by default.
    fn remember(&mut self, _shared: Shared) -> io::Result<()> {
        Ok(())
    }

    /// Emits a value that was named before; `false` if it has to be written out.
    fn recall(&mut self, _shared: Shared) -> io::Result<bool> {
        Ok(false)
    }
}

/// What is worth sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shared {
    Frame(u32),
    Stack(StackId),
}
