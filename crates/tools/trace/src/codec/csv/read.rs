//! Reading gpu-alloc-trace v1.
//!
//! Invariant: memory is one buffer of fixed size plus the events; every event is checked against
//! the blocks live at that moment before it is taken.

use std::io::{self, Read};

use super::columns::{HEADER, HEADER_POOLS};
use crate::codec::builder::Builder;
use crate::codec::error::{Place, Problem, ReadError, quote};
use crate::codec::limits::Limits;
use crate::model::{Kind, Trace};

/// Size of the buffer, which is also the longest line accepted.
const BUFFER_BYTES: usize = 256 << 10;
/// Stands for "this id is not live".
const NOT_LIVE: u32 = u32::MAX;

/// Reads a trace from decompressed text.
pub(in crate::codec) fn read(
    mut input: impl Read,
    name: &str,
    trace_name: String,
    limits: &Limits,
) -> Result<Trace, ReadError> {
    let mut lines = Lines::new(limits);
    let mut buffer = vec![0_u8; BUFFER_BYTES];
    let mut filled = 0;
    loop {
        let got = match input.read(&mut buffer[filled..]) {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ReadError::new(name, lines.place(), error)),
        };
        filled += got;
        let taken = match buffer[..filled].iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            // The last line may lack its newline.
            None if got == 0 => filled,
            None if filled == BUFFER_BYTES => {
                let problem = Problem::LongLine { limit: BUFFER_BYTES };
                return Err(ReadError::new(name, lines.place(), problem));
            }
            None => 0,
        };
        lines
            .take(&buffer[..taken])
            .map_err(|problem| ReadError::new(name, lines.place(), problem))?;
        buffer.copy_within(taken..filled, 0);
        filled -= taken;
        if got == 0 {
            break;
        }
    }
    if !lines.has_header {
        let problem = Problem::Header { wants: HEADER, found: String::new() };
        return Err(ReadError::new(name, lines.place(), problem));
    }
    Ok(lines.builder.finish(trace_name).trace)
}

/// What has been read so far.
struct Lines {
    builder: Builder,
    /// Number of the line being read, from 1.
    line: u64,
    has_header: bool,
    has_pools: bool,
    /// Block number by the file's id.
    blocks: Vec<u32>,
}

struct Row {
    id: u64,
    bytes: u64,
    stream: u64,
    time_ns: u64,
    pool: u64,
}

impl Lines {
    fn new(limits: &Limits) -> Self {
        Self {
            builder: Builder::new(limits),
            line: 1,
            has_header: false,
            has_pools: false,
            blocks: Vec::new(),
        }
    }

    fn place(&self) -> Place {
        Place::Line(self.line)
    }

    /// Takes whole lines; `line` stays at the one that fails.
    fn take(&mut self, text: &[u8]) -> Result<(), Problem> {
        let mut rest = text;
        while let [op, after @ ..] = rest {
            rest = match op {
                b'a' | b'f' | b's' | b'e' | b'm' | b'o' | b'w' | b'c' | b'd' if self.has_header => {
                    let mut cursor = Cursor { rest: after, line: rest };
                    let row = cursor.row(self.has_pools)?;
                    self.event(*op, &row)?;
                    cursor.rest
                }
                _ => {
                    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
                    self.other(line)?;
                    rest.get(end + 1..).unwrap_or_default()
                }
            };
            self.line += 1;
        }
        Ok(())
    }

    /// A line that is no event: comment, header, nothing.
    fn other(&mut self, line: &[u8]) -> Result<(), Problem> {
        match line {
            [] | [b'#', ..] => {}
            _ if self.has_header => {
                let op = line.split(|byte| *byte == b',').next().unwrap_or_default();
                return Err(Problem::UnknownOp { found: quote(op) });
            }
            _ if line == HEADER.as_bytes() => self.has_header = true,
            _ if line == HEADER_POOLS.as_bytes() => {
                self.has_header = true;
                self.has_pools = true;
            }
            _ => {
                return Err(Problem::Header { wants: HEADER, found: quote(line) });
            }
        }
        Ok(())
    }

    fn event(&mut self, op: u8, row: &Row) -> Result<(), Problem> {
        let time_ns = row.time_ns;
        match op {
            b'a' => {
                let slot = self.unused(row.id)?;
                let stream = self.builder.stream(row.stream)?;
                let block = self.builder.allocate(time_ns, row.bytes, stream, pool(row)?)?;
                self.blocks[slot] = block;
            }
            b'f' => {
                let block = self.used(row)?;
                let wants = self.builder.raw_stream(self.builder.live(block).stream);
                if row.stream != wants {
                    return Err(Problem::Mismatch { field: "stream", found: row.stream, wants });
                }
                self.builder.free(time_ns, block)?;
                self.blocks[row.id as usize] = NOT_LIVE;
            }
            b's' => {
                let block = self.used(row)?;
                let stream = self.builder.stream(row.stream)?;
                self.builder.record_stream(time_ns, block, stream)?;
            }
            b'e' => self.builder.mark(time_ns, Kind::EmptyCache)?,
            b'm' => self.builder.mark(time_ns, Kind::Iteration)?,
            b'w' => self.builder.mark(time_ns, Kind::HostWait)?,
            b'c' | b'd' => {
                let stream = self.builder.stream(row.stream)?;
                if op == b'c' {
                    self.builder.begin_capture(time_ns, stream, pool(row)?)?;
                } else {
                    self.builder.end_capture(time_ns, stream)?;
                }
            }
            _ => {
                let stream = self.builder.stream(row.stream)?;
                self.builder.out_of_memory(time_ns, row.bytes, stream, pool(row)?)?;
            }
        }
        Ok(())
    }

    /// The place of an id that must not be live. Ids are dense, so an id costs at most 4 bytes of
    /// memory for each line read before it.
    fn unused(&mut self, id: u64) -> Result<usize, Problem> {
        let next = self.blocks.len() as u64;
        if id > next {
            return Err(Problem::SparseBlock { id, next });
        }
        let slot = id as usize;
        if id == next {
            self.blocks.push(NOT_LIVE);
        } else if self.blocks[slot] != NOT_LIVE {
            return Err(Problem::DuplicateBlock { id });
        }
        Ok(slot)
    }

    /// The block of an id that must be live, with the size it was allocated with.
    fn used(&self, row: &Row) -> Result<u32, Problem> {
        let block = usize::try_from(row.id).ok().and_then(|id| self.blocks.get(id));
        let block = block.copied().filter(|block| *block != NOT_LIVE);
        let block = block.ok_or(Problem::UnknownBlock { id: row.id })?;
        let wants = self.builder.live(block).bytes;
        if row.bytes != wants {
            return Err(Problem::Mismatch { field: "bytes", found: row.bytes, wants });
        }
        Ok(block)
    }
}

fn pool(row: &Row) -> Result<u8, Problem> {
    // 255 would need 256 pools, which the model's count cannot hold.
    u8::try_from(row.pool)
        .ok()
        .filter(|pool| *pool < u8::MAX)
        .ok_or(Problem::TooMany { what: "pools", limit: u64::from(u8::MAX) })
}

/// Reads the fields of one line; `line` is kept for messages.
struct Cursor<'a> {
    rest: &'a [u8],
    line: &'a [u8],
}

impl Cursor<'_> {
    #[inline]
    fn row(&mut self, has_pools: bool) -> Result<Row, Problem> {
        let id = self.number("id")?;
        let bytes = self.number("bytes")?;
        let stream = self.number("stream")?;
        let time_ns = self.number("time_ns")?;
        let pool = if has_pools { self.number("pool")? } else { 0 };
        self.rest = match self.rest {
            [] => &[],
            [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] => rest,
            _ => return Err(self.wrong_count(if has_pools { 6 } else { 5 })),
        };
        Ok(Row { id, bytes, stream, time_ns, pool })
    }

    /// A comma and a decimal number below 2^64.
    #[inline]
    fn number(&mut self, field: &'static str) -> Result<u64, Problem> {
        let [b',', after @ ..] = self.rest else {
            return Err(self.not_a_comma());
        };
        let mut value = 0_u64;
        let mut at = 0;
        while let Some(digit @ b'0'..=b'9') = after.get(at) {
            value = match value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0')))
            {
                Some(value) => value,
                None => return Err(wrong_field(field, after)),
            };
            at += 1;
        }
        let ends = matches!(after.get(at), None | Some(b',' | b'\n' | b'\r'));
        if at == 0 || !ends {
            return Err(wrong_field(field, after));
        }
        self.rest = &after[at..];
        Ok(value)
    }

    #[cold]
    fn not_a_comma(&self) -> Problem {
        let line = self.line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let op = line.split(|byte| *byte == b',').next().unwrap_or_default();
        if op.len() > 1 && op != line {
            return Problem::UnknownOp { found: quote(op) };
        }
        self.wrong_count(5)
    }

    #[cold]
    fn wrong_count(&self, wants: usize) -> Problem {
        let line = self.line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Problem::Fields { found: line.split(|byte| *byte == b',').count(), wants }
    }
}

#[cold]
fn wrong_field(field: &'static str, text: &[u8]) -> Problem {
    let is_end = |byte: &u8| matches!(byte, b',' | b'\n' | b'\r');
    let found = text.split(is_end).next().unwrap_or_default();
    Problem::Field { field, found: quote(found), wants: "a number from 0 to 2^64 - 1" }
}
