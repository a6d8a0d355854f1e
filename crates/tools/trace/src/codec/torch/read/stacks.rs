//! The stacks of a snapshot, each looked at once.

use super::fault::{Fault, Read};
use super::reader::{Reader, UNKNOWN};
use crate::codec::graph::Id;
use crate::snapshot::{Frame, StackId};

impl Reader<'_, '_> {
    pub(super) fn stack(&mut self, value: Id) -> Read<StackId> {
        let known = self.known[value as usize];
        if known != UNKNOWN {
            return Ok(StackId(known));
        }
        let mut numbers = std::mem::take(&mut self.numbers);
        numbers.clear();
        for (index, frame) in self.list(value)?.enumerate() {
            self.plain.spend()?;
            let number = self.frame(frame).map_err(|f| f.at(format_args!("[{index}]")))?;
            numbers.push(number);
        }
        let stack = self.stacks.add(&numbers);
        self.numbers = numbers;
        self.known[value as usize] = stack.0;
        Ok(stack)
    }

    fn frame(&mut self, value: Id) -> Read<u32> {
        let known = self.known[value as usize];
        if known != UNKNOWN {
            return Ok(known);
        }
        let mut frame = Frame::default();
        for (key, value) in self.entries(value)? {
            self.plain.spend()?;
            let name = self.text(key)?;
            let fault = |fault: Fault| fault.at(String::from_utf8_lossy(name));
            match name {
                b"filename" => frame.filename = self.plain.text(value).map_err(fault)?,
                b"name" => frame.name = self.plain.text(value).map_err(fault)?,
                b"line" => frame.line = self.number(value).map_err(fault)?,
                _ => {
                    let key = self.plain.text(key)?.to_string();
                    frame.more.insert(key, self.plain.value(value).map_err(fault)?);
                }
            }
        }
        let number = self.stacks.add_frame(frame);
        self.known[value as usize] = number;
        Ok(number)
    }
}
