//! JSON, as it streams out.
//!
//! Invariant: the text is valid JSON; a number that JSON cannot say becomes null.

use std::io::{self, Write};

use crate::codec::emit::Emit;

pub(in crate::codec) struct Writer<W> {
    output: W,
    /// For each open container: how it closes, and whether it has items.
    open: Vec<(u8, bool)>,
    after_key: bool,
}

impl<W: Write> Writer<W> {
    pub(in crate::codec) fn new(output: W) -> Self {
        Self { output, open: Vec::new(), after_key: false }
    }

    pub(in crate::codec) fn finish(mut self) -> io::Result<()> {
        self.output.write_all(b"\n")?;
        self.output.flush()
    }

    /// What separates a value or key from the one before it.
    fn separate(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.after_key) {
            return Ok(());
        }
        let Some((_, has_items)) = self.open.last_mut() else { return Ok(()) };
        if std::mem::replace(has_items, true) { self.output.write_all(b",") } else { Ok(()) }
    }

    fn open(&mut self, with: u8, close: u8) -> io::Result<()> {
        self.separate()?;
        self.open.push((close, false));
        self.output.write_all(&[with])
    }
}

impl<W: Write> Emit for Writer<W> {
    fn dict(&mut self) -> io::Result<()> {
        self.open(b'{', b'}')
    }

    fn list(&mut self) -> io::Result<()> {
        self.open(b'[', b']')
    }

    fn end(&mut self) -> io::Result<()> {
        match self.open.pop() {
            Some((close, _)) => self.output.write_all(&[close]),
            None => Ok(()),
        }
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        self.text(key)?;
        self.after_key = true;
        self.output.write_all(b":")
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.separate()?;
        serde_json::to_writer(&mut self.output, text).map_err(io::Error::from)
    }

    fn int(&mut self, number: i128) -> io::Result<()> {
        self.separate()?;
        write!(self.output, "{number}")
    }

    fn float(&mut self, number: f64) -> io::Result<()> {
        self.separate()?;
        serde_json::to_writer(&mut self.output, &number).map_err(io::Error::from)
    }

    fn bool(&mut self, flag: bool) -> io::Result<()> {
        self.separate()?;
        write!(self.output, "{flag}")
    }

    fn null(&mut self) -> io::Result<()> {
        self.separate()?;
        self.output.write_all(b"null")
    }

    fn pair(&mut self, (first, second): (u32, u32)) -> io::Result<()> {
        self.separate()?;
        write!(self.output, "[{first},{second}]")
    }
}
