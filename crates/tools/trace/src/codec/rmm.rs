//! Logs of RMM's `logging_resource_adaptor`, read only.
//!
//! The columns are `Thread,Time,Action,Pointer,Size,Stream`; oldest logs lack the thread. Pointers
//! and streams are hexadecimal, `(nil)` is 0, and stream 1 is another name of the default stream.
//! A free on another stream than its allocation's means that the block was used there.
//! Invariant: times are those of a day's clock, so one that falls by half a day or more has passed
//! midnight; threads may log up to a second out of order, and are put at the latest time so far.

use std::collections::HashMap;
use std::io::Read;

use csv::ByteRecord;

use super::builder::Builder;
use super::error::{Place, Problem, ReadError, quote};
use super::limits::Limits;
use crate::model::Trace;

/// The end of the header line, by which such a log is known.
pub(super) const HEADER_END: &str = "Action,Pointer,Size,Stream";
const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream";
const DAY_NS: u64 = 86_400_000_000_000;
const DISORDER_NS: u64 = 1_000_000_000;

pub(super) fn read(
    input: impl Read,
    name: &str,
    trace_name: String,
    limits: &Limits,
) -> Result<Trace, ReadError> {
    let mut rows = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .quoting(false)
        .trim(csv::Trim::All)
        .from_reader(input);
    let mut log: Option<Log> = None;
    let mut row = ByteRecord::new();
    loop {
        let line = rows.position().line();
        let failed =
            |problem| ReadError { name: name.to_owned(), place: Place::Line(line), problem };
        match rows.read_byte_record(&mut row) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Err(failed(Problem::Io(error.into()))),
        }
        match &mut log {
            None => log = Some(Log::new(&row, limits).map_err(failed)?),
            Some(log) => log.row(&row).map_err(failed)?,
        }
    }
    match log {
        Some(log) => Ok(log.builder.finish(trace_name).trace),
        None => Err(ReadError::new(name, Place::File, Problem::Empty)),
    }
}

struct Log {
    builder: Builder,
    /// Fields of a line, and which of them is the time.
    fields: usize,
    time: usize,
    now_ns: u64,
    /// Midnights passed, in nanoseconds.
    days_ns: u64,
    /// Number of the block at an address.
    live: HashMap<u64, u32>,
}

impl Log {
    fn new(header: &ByteRecord, limits: &Limits) -> Result<Self, Problem> {
        let is = |names: &str| header.iter().eq(names.split(',').map(str::as_bytes));
        let time = match () {
            () if is(HEADER) => 1,
            () if is("Time,Action,Pointer,Size,Stream") => 0,
            () => {
                let line: Vec<&[u8]> = header.iter().collect();
                let found = quote(&line.join(&b','));
                return Err(Problem::Header { wants: HEADER, found });
            }
        };
        Ok(Self {
            builder: Builder::new(limits),
            fields: header.len(),
            time,
            now_ns: 0,
            days_ns: 0,
            live: HashMap::new(),
        })
    }

    fn row(&mut self, row: &ByteRecord) -> Result<(), Problem> {
        if row.len() != self.fields {
            return Err(Problem::Fields { found: row.len(), wants: self.fields });
        }
        let field = |index: usize| row.get(index).unwrap_or_default();
        let time_ns = self.time_ns(field(self.time))?;
        let action = field(self.time + 1);
        let address = hexadecimal("Pointer", field(self.time + 2))?;
        let bytes = decimal("Size", field(self.time + 3))?;
        let stream = match hexadecimal("Stream", field(self.time + 4))? {
            1 => 0,
            stream => stream,
        };
        // RMM serves requests of nothing, and takes no memory for them.
        if bytes == 0 && matches!(action, b"allocate" | b"free" | b"deallocate") {
            return Ok(());
        }
        let stream = self.builder.stream(stream)?;
        match action {
            b"allocate failure" => self.builder.out_of_memory(time_ns, bytes, stream, 0),
            b"allocate" => {
                if self.live.contains_key(&address) {
                    return Err(Problem::DuplicateAddress { address });
                }
                let block = self.builder.allocate(time_ns, bytes, stream, 0)?;
                self.live.insert(address, block);
                Ok(())
            }
            b"free" | b"deallocate" => self.free(time_ns, address, bytes, stream),
            _ => Err(Problem::UnknownOp { found: quote(action) }),
        }
    }

    fn free(&mut self, time_ns: u64, address: u64, bytes: u64, stream: u16) -> Result<(), Problem> {
        let Some(&block) = self.live.get(&address) else {
            return Err(Problem::UnknownAddress { address });
        };
        let live = self.builder.live(block);
        if bytes != live.bytes {
            return Err(Problem::Mismatch { field: "Size", found: bytes, wants: live.bytes });
        }
        if stream != live.stream {
            self.builder.record_stream(time_ns, block, stream)?;
        }
        self.live.remove(&address);
        self.builder.free(time_ns, block)
    }

    /// Time on a clock that neither ends at midnight nor goes back.
    fn time_ns(&mut self, text: &[u8]) -> Result<u64, Problem> {
        let wants = "a time as HH:MM:SS.micros or seconds";
        let found = || Problem::Field { field: "Time", found: quote(text), wants };
        let clock_ns = parse_time(text).ok_or_else(found)?;
        let mut time_ns = clock_ns.checked_add(self.days_ns).ok_or_else(found)?;
        if time_ns.saturating_add(DAY_NS / 2) <= self.now_ns {
            self.days_ns = self.days_ns.saturating_add(DAY_NS);
            time_ns = clock_ns.saturating_add(self.days_ns);
        }
        if time_ns.saturating_add(DISORDER_NS) < self.now_ns {
            return Err(Problem::TimeBack { before_ns: self.now_ns, time_ns });
        }
        self.now_ns = self.now_ns.max(time_ns);
        Ok(self.now_ns)
    }
}

/// `HH:MM:SS.micros`, `HH:MM:SS:micros` as older versions wrote it, or seconds since 1970.
fn parse_time(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut parts = text.split(':');
    let (first, minutes, seconds, micros) =
        (parts.next()?, parts.next(), parts.next(), parts.next());
    let (whole_s, rest) = match (minutes, seconds) {
        (None, None) => (0, first),
        (Some(minutes), Some(seconds)) => {
            let whole = digits(first)?.checked_mul(3600)?;
            (whole.checked_add(digits(minutes)?.checked_mul(60)?)?, seconds)
        }
        _ => return None,
    };
    let (seconds, fraction) = match micros {
        Some(micros) => (rest, micros),
        None => rest.split_once('.').unwrap_or((rest, "0")),
    };
    if fraction.len() > 9 || parts.next().is_some() {
        return None;
    }
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let whole_ns = whole_s.checked_add(digits(seconds)?)?.checked_mul(1_000_000_000)?;
    whole_ns.checked_add(digits(fraction)? * scale)
}

fn digits(text: &str) -> Option<u64> {
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| all_digits)
}

fn decimal(field: &'static str, text: &[u8]) -> Result<u64, Problem> {
    let wants = "a number from 0 to 2^64 - 1";
    let number = std::str::from_utf8(text).ok().and_then(digits);
    number.ok_or_else(|| Problem::Field { field, found: quote(text), wants })
}

fn hexadecimal(field: &'static str, text: &[u8]) -> Result<u64, Problem> {
    if text == b"(nil)" {
        return Ok(0);
    }
    let wants = "a hexadecimal number of at most 64 bits, or (nil)";
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    let all_digits = digits.iter().all(u8::is_ascii_hexdigit);
    let number = std::str::from_utf8(digits).ok().filter(|_| all_digits);
    let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| Problem::Field { field, found: quote(text), wants })
}

#[cfg(test)]
mod tests;
