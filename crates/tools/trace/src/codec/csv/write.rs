//! Writing gpu-alloc-trace v1.
//!
//! Invariant: what is written reads back as the same events, blocks, streams and pools. What the
//! format has no place for is left out: a snapshot's recording and completion times.

use std::io::{self, Write};

use super::columns::{HEADER, HEADER_POOLS, TITLE};
use crate::model::{Event, Kind, Trace};

/// Compression level: traces shrink to an eighth, at a million events per second. Higher levels
/// halve that once more, but take up to twenty times as long.
const LEVEL: i32 = 12;
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a trace as text.
pub fn write(trace: &Trace, output: impl Write) -> io::Result<()> {
    let mut output = io::BufWriter::with_capacity(BUFFER_BYTES, output);
    let name: String = trace.name.chars().filter(|c| !c.is_control()).collect();
    let has_pools = trace.pools > 1;
    let header = if has_pools { HEADER_POOLS } else { HEADER };
    writeln!(output, "{TITLE}; name={name}\n{header}")?;
    let mut iterations = 0_u64;
    let mut line = Vec::with_capacity(128);
    for event in &trace.events {
        let (op, id) = match event.kind {
            Kind::Allocate => (b'a', u64::from(event.block)),
            Kind::Free => (b'f', u64::from(event.block)),
            Kind::RecordStream => (b's', u64::from(event.block)),
            Kind::EmptyCache => (b'e', 0),
            Kind::Iteration => {
                iterations += 1;
                (b'm', iterations - 1)
            }
            Kind::OutOfMemory => (b'o', 0),
            Kind::HostWait => (b'w', 0),
            Kind::CaptureBegin => (b'c', 0),
            Kind::CaptureEnd => (b'd', 0),
        };
        line.clear();
        line.push(op);
        let Event { bytes, stream, time_ns, pool, .. } = *event;
        for number in [id, bytes, u64::from(stream), time_ns] {
            line.push(b',');
            push_number(&mut line, number);
        }
        if has_pools {
            line.push(b',');
            push_number(&mut line, u64::from(pool));
        }
        line.push(b'\n');
        output.write_all(&line)?;
    }
    output.flush()
}

/// Writes a trace as text compressed with zstd.
pub fn write_zst(trace: &Trace, output: impl Write) -> io::Result<()> {
    let mut encoder = zstd::Encoder::new(output, LEVEL)?;
    write(trace, &mut encoder)?;
    encoder.finish()?.flush()
}

/// Appends a decimal number; `write!` takes several times as long.
fn push_number(line: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at..]);
}
