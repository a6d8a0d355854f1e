//! The machine that reads a pickle into a [`Graph`].
//!
//! Invariants: one pass, one loop, no recursion; every opcode consumes at least a byte and makes
//! at most one value; a length is checked against what is left of the file before it is believed.
//! An error names the byte at which its opcode starts.

use super::cursor::{Cursor, Step, decimal, long};
use super::opcode as op;
use super::text;
use crate::codec::error::{Place, Problem};
use crate::codec::graph::{Full, Graph, Id, Items, Node};

/// Deepest nesting of marks; real snapshots have 10.
const MOST_MARKS: usize = 1 << 16;
/// A memo slot that was never filled.
const UNSET: Id = Id::MAX;

impl From<Full> for Problem {
    fn from(_: Full) -> Self {
        Self::TooMany { what: "values", limit: u64::from(u32::MAX) }
    }
}

/// Reads one pickle, which must be the whole file. Returns its values and the outermost one.
pub(in crate::codec) fn read(file: &[u8]) -> Result<(Graph<'_>, Id), (Place, Problem)> {
    let mut machine = Machine::new(file);
    loop {
        let start = machine.input.at();
        match machine.step() {
            Ok(None) => {}
            Ok(Some(root)) => {
                let left = machine.input.left();
                if left > 0 {
                    let place = Place::Byte(machine.input.at() as u64);
                    return Err((place, Problem::Trailing { left }));
                }
                return Ok((machine.graph, root));
            }
            Err(problem) => return Err((Place::Byte(start as u64), problem)),
        }
    }
}

struct Machine<'f> {
    input: Cursor<'f>,
    graph: Graph<'f>,
    stack: Vec<Id>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: Vec<Id>,
    /// Values that are written again and again, made at their first use.
    small: [Id; 256],
    null: Id,
    bools: [Id; 2],
}

impl<'f> Machine<'f> {
    fn new(file: &'f [u8]) -> Self {
        Self {
            input: Cursor::new(file),
            graph: Graph::new(file),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            small: [UNSET; 256],
            null: UNSET,
            bools: [UNSET; 2],
        }
    }

    /// Carries out one opcode; returns the result at the end.
    fn step(&mut self) -> Step<Option<Id>> {
        let opcode = self.input.byte()?;
        match opcode {
            op::STOP => return self.pop().map(Some),
            op::PROTO => match self.input.byte()? {
                0..=5 => {}
                version => return Err(Problem::PickleProtocol { version }),
            },
            op::FRAME => {
                let claimed = self.input.size::<8>()?;
                let left = self.input.left();
                if claimed > left {
                    return Err(Problem::Length { claimed, left });
                }
            }
            op::MARK => {
                if self.marks.len() >= MOST_MARKS {
                    return Err(Problem::Nesting { limit: MOST_MARKS });
                }
                self.marks.push(self.stack.len());
            }
            op::POP => match self.marks.last() {
                Some(&mark) if mark == self.stack.len() => drop(self.marks.pop()),
                _ => drop(self.pop()?),
            },
            op::POP_MARK => {
                let mark = self.mark()?;
                self.stack.truncate(mark);
            }
            op::DUP => {
                let top = self.top()?;
                self.stack.push(top);
            }
            op::GET | op::BINGET | op::LONG_BINGET => self.get(opcode)?,
            op::PUT | op::BINPUT | op::LONG_BINPUT | op::MEMOIZE => self.put(opcode)?,
            op::EMPTY_DICT
            | op::EMPTY_LIST
            | op::EMPTY_TUPLE
            | op::DICT
            | op::LIST
            | op::TUPLE
            | op::TUPLE1
            | op::TUPLE2
            | op::TUPLE3 => self.container(opcode)?,
            op::APPEND | op::APPENDS | op::SETITEM | op::SETITEMS => self.fill(opcode)?,
            _ => self.scalar(opcode)?,
        }
        Ok(None)
    }

    fn scalar(&mut self, opcode: u8) -> Step {
        let node = match opcode {
            op::NONE => return self.shared(Node::Null, |machine| &mut machine.null),
            op::NEWTRUE => return self.bool(true),
            op::NEWFALSE => return self.bool(false),
            op::BININT1 => {
                let value = self.input.byte()?;
                let node = Node::Int(i64::from(value));
                return self.shared(node, |machine| &mut machine.small[usize::from(value)]);
            }
            op::BININT2 => Node::Int(i64::from(u16::from_le_bytes(self.input.array()?))),
            op::BININT => Node::Int(i64::from(i32::from_le_bytes(self.input.array()?))),
            op::LONG1 => {
                let len = self.input.byte()?;
                long(self.input.take(u64::from(len))?)?
            }
            op::LONG4 => {
                let len = self.input.size::<4>()?;
                long(self.input.take(len)?)?
            }
            op::BINFLOAT => Node::Float(f64::from_be_bytes(self.input.array()?)),
            op::INT => match self.input.line()? {
                b"00" => return self.bool(false),
                b"01" => return self.bool(true),
                digits => decimal(digits)?,
            },
            op::LONG => {
                let line = self.input.line()?;
                decimal(line.strip_suffix(b"L").unwrap_or(line))?
            }
            op::FLOAT => {
                let line = self.input.line()?;
                let text = std::str::from_utf8(line).ok();
                let value = text.and_then(|text| text.parse().ok());
                Node::Float(value.ok_or(Problem::PickleNumber)?)
            }
            op::UNICODE => {
                let text = text::unescape_unicode(self.input.line()?)?;
                Node::Text(self.graph.add_text(&text)?)
            }
            op::STRING => {
                let text = text::unescape_string(self.input.line()?)?;
                Node::Text(self.graph.add_text(&text)?)
            }
            _ => self.counted(opcode)?,
        };
        let id = self.graph.add(node)?;
        self.stack.push(id);
        Ok(())
    }

    /// Texts and bytes with their length before them.
    fn counted(&mut self, opcode: u8) -> Step<Node> {
        let len = match opcode {
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING | op::SHORT_BINBYTES => {
                self.input.size::<1>()?
            }
            op::BINUNICODE | op::BINSTRING | op::BINBYTES => self.input.size::<4>()?,
            op::BINUNICODE8 | op::BINBYTES8 | op::BYTEARRAY8 => self.input.size::<8>()?,
            _ => {
                return Err(match op::refused(opcode) {
                    Some(name) => Problem::PickleRefused { name },
                    None => Problem::PickleUnknown { opcode },
                });
            }
        };
        let len = self.input.take(len)?.len();
        let place = self.graph.place(self.input.at() - len, len)?;
        Ok(match opcode {
            op::SHORT_BINBYTES | op::BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => {
                Node::Bytes(place)
            }
            _ => Node::Text(place),
        })
    }

    fn container(&mut self, opcode: u8) -> Step {
        let from = match opcode {
            op::TUPLE1 => self.below(1)?,
            op::TUPLE2 => self.below(2)?,
            op::TUPLE3 => self.below(3)?,
            op::DICT | op::LIST | op::TUPLE => self.mark()?,
            _ => self.stack.len(),
        };
        let given = &self.stack[from..];
        if opcode == op::DICT && !given.len().is_multiple_of(2) {
            return Err(Problem::PickleOdd);
        }
        let items = self.graph.extend(Items::NONE, given)?;
        self.stack.truncate(from);
        let node = match opcode {
            op::EMPTY_DICT | op::DICT => Node::Dict(items),
            op::EMPTY_LIST | op::LIST => Node::List(items),
            _ => Node::Tuple(items),
        };
        let id = self.graph.add(node)?;
        self.stack.push(id);
        Ok(())
    }

    fn fill(&mut self, opcode: u8) -> Step {
        let from = match opcode {
            op::APPEND => self.below(1)?,
            op::SETITEM => self.below(2)?,
            _ => self.mark()?,
        };
        let is_list = matches!(opcode, op::APPEND | op::APPENDS);
        let floor = self.marks.last().copied().unwrap_or(0);
        let Some(target) = from.checked_sub(1).filter(|at| *at >= floor) else {
            return Err(Problem::PickleUnderflow);
        };
        let target = self.stack[target];
        let given = &self.stack[from..];
        let node = match self.graph.node(target) {
            Node::List(items) if is_list => Node::List(self.graph.extend(items, given)?),
            Node::Dict(items) if !is_list => {
                if !given.len().is_multiple_of(2) {
                    return Err(Problem::PickleOdd);
                }
                Node::Dict(self.graph.extend(items, given)?)
            }
            _ => return Err(Problem::PickleTarget),
        };
        self.graph.set(target, node);
        self.stack.truncate(from);
        Ok(())
    }

    fn get(&mut self, opcode: u8) -> Step {
        let index = self.memo_index(opcode)?;
        let id = usize::try_from(index).ok().and_then(|index| self.memo.get(index)).copied();
        match id {
            Some(id) if id != UNSET => self.stack.push(id),
            _ => return Err(Problem::PickleMemo { index }),
        }
        Ok(())
    }

    fn put(&mut self, opcode: u8) -> Step {
        let top = self.top()?;
        let index = match opcode {
            op::MEMOIZE => self.memo.len() as u64,
            _ => self.memo_index(opcode)?,
        };
        // Writers count from 0 or 1, and every entry costs them a byte or more.
        let index = usize::try_from(index)
            .ok()
            .filter(|index| *index <= self.input.at())
            .ok_or(Problem::PickleMemo { index })?;
        if index >= self.memo.len() {
            self.memo.resize(index + 1, UNSET);
        }
        self.memo[index] = top;
        Ok(())
    }

    fn memo_index(&mut self, opcode: u8) -> Step<u64> {
        match opcode {
            op::BINGET | op::BINPUT => self.input.size::<1>(),
            op::LONG_BINGET | op::LONG_BINPUT => self.input.size::<4>(),
            _ => match decimal(self.input.line()?)? {
                Node::Int(index) if index >= 0 => Ok(index.unsigned_abs()),
                _ => Err(Problem::PickleNumber),
            },
        }
    }

    fn bool(&mut self, value: bool) -> Step {
        self.shared(Node::Bool(value), |machine| &mut machine.bools[usize::from(value)])
    }

    /// Pushes a value that exists once.
    fn shared(&mut self, node: Node, slot: impl Fn(&mut Self) -> &mut Id) -> Step {
        if *slot(self) == UNSET {
            *slot(self) = self.graph.add(node)?;
        }
        let id = *slot(self);
        self.stack.push(id);
        Ok(())
    }

    fn top(&self) -> Step<Id> {
        let from = self.below(1)?;
        Ok(self.stack[from])
    }

    fn pop(&mut self) -> Step<Id> {
        let from = self.below(1)?;
        let id = self.stack[from];
        self.stack.truncate(from);
        Ok(id)
    }

    /// The height `count` values below the top, which a mark may not lie above.
    fn below(&self, count: usize) -> Step<usize> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let height = self.stack.len().checked_sub(count);
        match height {
            Some(height) if height >= floor => Ok(height),
            _ => Err(Problem::PickleUnderflow),
        }
    }

    fn mark(&mut self) -> Step<usize> {
        self.marks.pop().ok_or(Problem::PickleUnderflow)
    }
}
