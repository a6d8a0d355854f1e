//! Writing pickles that MemoryViz opens.
//!
//! Invariants: protocol 2 and only the opcodes below; integers beyond 31 bits as LONG1; lists are
//! filled in batches of at most [`BATCH`] items; texts, and whatever the caller names, are
//! written once and referred to from then on.

use std::collections::HashMap;
use std::io::{self, Write};

use super::opcode as op;
use crate::codec::emit::{Emit, Shared};

/// Most items in one APPENDS or SETITEMS: MemoryViz passes them as arguments of a function.
const BATCH: u32 = 1000;
/// Texts longer than this are not looked up in the memo, but written again.
const MEMO_TEXT_BYTES: usize = 512;

pub(in crate::codec) struct Writer<W> {
    output: W,
    open: Vec<Open>,
    texts: HashMap<Box<str>, u32>,
    shared: HashMap<Shared, u32>,
    memo: u32,
}

/// A container that is being filled.
struct Open {
    is_dict: bool,
    /// Items since the last batch; a key and its value are one.
    items: u32,
    is_marked: bool,
    after_key: bool,
}

impl<W: Write> Writer<W> {
    pub(in crate::codec) fn new(mut output: W) -> io::Result<Self> {
        output.write_all(&[op::PROTO, 2])?;
        Ok(Self {
            output,
            open: Vec::new(),
            texts: HashMap::new(),
            shared: HashMap::new(),
            memo: 0,
        })
    }

    pub(in crate::codec) fn finish(mut self) -> io::Result<()> {
        self.output.write_all(&[op::STOP])?;
        self.output.flush()
    }

    /// Called before every value and key.
    fn item(&mut self) -> io::Result<()> {
        let Some(top) = self.open.last_mut() else { return Ok(()) };
        if std::mem::take(&mut top.after_key) {
            return Ok(());
        }
        if top.items == BATCH {
            self.output.write_all(&[if top.is_dict { op::SETITEMS } else { op::APPENDS }])?;
            top.items = 0;
            top.is_marked = false;
        }
        if !std::mem::replace(&mut top.is_marked, true) {
            self.output.write_all(&[op::MARK])?;
        }
        top.items += 1;
        Ok(())
    }

    fn open(&mut self, is_dict: bool) -> io::Result<()> {
        self.item()?;
        self.open.push(Open { is_dict, items: 0, is_marked: false, after_key: false });
        self.output.write_all(&[if is_dict { op::EMPTY_DICT } else { op::EMPTY_LIST }])
    }

    fn get(&mut self, memo: u32) -> io::Result<()> {
        match u8::try_from(memo) {
            Ok(memo) => self.output.write_all(&[op::BINGET, memo]),
            Err(_) => self.sized(op::LONG_BINGET, memo),
        }
    }

    fn put(&mut self) -> io::Result<u32> {
        let memo = self.memo;
        self.memo = memo.checked_add(1).ok_or_else(too_many)?;
        match u8::try_from(memo) {
            Ok(memo) => self.output.write_all(&[op::BINPUT, memo])?,
            Err(_) => self.sized(op::LONG_BINPUT, memo)?,
        }
        Ok(memo)
    }

    fn sized(&mut self, opcode: u8, value: u32) -> io::Result<()> {
        self.output.write_all(&[opcode])?;
        self.output.write_all(&value.to_le_bytes())
    }

    fn write_text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&memo) = self.texts.get(text) {
            return self.get(memo);
        }
        let len = u32::try_from(text.len()).map_err(|_| too_many())?;
        self.sized(op::BINUNICODE, len)?;
        self.output.write_all(text.as_bytes())?;
        if text.len() <= MEMO_TEXT_BYTES {
            let memo = self.put()?;
            self.texts.insert(text.into(), memo);
        }
        Ok(())
    }

    fn write_int(&mut self, number: i128) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(number) {
            return self.output.write_all(&[op::BININT1, byte]);
        }
        if let Ok(word) = u16::try_from(number) {
            let [low, high] = word.to_le_bytes();
            return self.output.write_all(&[op::BININT2, low, high]);
        }
        if let Ok(word) = i32::try_from(number) {
            return self.sized(op::BININT, word.cast_unsigned());
        }
        let bytes = number.to_le_bytes();
        // The fewest bytes whose sign is the number's.
        let len = (1..=bytes.len())
            .find(|len| {
                let shift = 128 - 8 * *len as u32;
                number << shift >> shift == number
            })
            .unwrap_or(bytes.len());
        self.output.write_all(&[op::LONG1, len as u8])?;
        self.output.write_all(&bytes[..len])
    }
}

fn too_many() -> io::Error {
    io::Error::other("a text or table beyond the 4 GiB that a pickle of protocol 2 can hold")
}

impl<W: Write> Emit for Writer<W> {
    fn dict(&mut self) -> io::Result<()> {
        self.open(true)
    }

    fn list(&mut self) -> io::Result<()> {
        self.open(false)
    }

    fn end(&mut self) -> io::Result<()> {
        match self.open.pop() {
            Some(Open { is_dict, is_marked: true, .. }) => {
                self.output.write_all(&[if is_dict { op::SETITEMS } else { op::APPENDS }])
            }
            _ => Ok(()),
        }
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        self.item()?;
        if let Some(top) = self.open.last_mut() {
            top.after_key = true;
        }
        self.write_text(key)
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.item()?;
        self.write_text(text)
    }

    fn int(&mut self, number: i128) -> io::Result<()> {
        self.item()?;
        self.write_int(number)
    }

    fn float(&mut self, number: f64) -> io::Result<()> {
        self.item()?;
        self.output.write_all(&[op::BINFLOAT])?;
        self.output.write_all(&number.to_be_bytes())
    }

    fn bool(&mut self, flag: bool) -> io::Result<()> {
        self.item()?;
        self.output.write_all(&[if flag { op::NEWTRUE } else { op::NEWFALSE }])
    }

    fn null(&mut self) -> io::Result<()> {
        self.item()?;
        self.output.write_all(&[op::NONE])
    }

    fn pair(&mut self, (first, second): (u32, u32)) -> io::Result<()> {
        self.item()?;
        self.write_int(first.into())?;
        self.write_int(second.into())?;
        self.output.write_all(&[op::TUPLE2])
    }

    fn remember(&mut self, shared: Shared) -> io::Result<()> {
        let memo = self.put()?;
        self.shared.insert(shared, memo);
        Ok(())
    }

    fn recall(&mut self, shared: Shared) -> io::Result<bool> {
        let Some(&memo) = self.shared.get(&shared) else { return Ok(false) };
        self.item()?;
        self.get(memo)?;
        Ok(true)
    }
}
