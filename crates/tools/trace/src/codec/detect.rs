//! What kind of file this is, by its first bytes, and the reader for it.
//!
//! Invariant: at most one layer of compression is removed, and its output is capped by
//! [`Limits::decoded_bytes`] as it streams by.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::error::{Place, Problem, ReadError};
use super::graph::{Graph, Id};
use super::limits::{Limits, MAX_SNAPSHOT_BYTES};
use super::{csv, json, pickle, rmm, torch};
use crate::model::Trace;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const PARQUET_MAGIC: [u8; 4] = *b"PAR1";
/// What some editors put before UTF-8 text; it means nothing.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// Enough to tell the formats apart.
const PEEK_BYTES: usize = 512;

/// Reads every trace of a file: one, or one for each device of a snapshot.
pub fn read_path(path: &Path, limits: &Limits) -> Result<Vec<Trace>, ReadError> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => read(BufReader::with_capacity(128 << 10, file), &name, limits),
        Err(error) => Err(ReadError::new(&name, Place::File, error)),
    }
}

/// Reads every trace of a stream, such as standard input. `name` stands for it in errors; without
/// folders and endings it names the trace.
pub fn read(mut input: impl BufRead, name: &str, limits: &Limits) -> Result<Vec<Trace>, ReadError> {
    let failed = |error| ReadError::new(name, Place::File, error);
    let head = peek(&mut input).map_err(failed)?;
    if head.starts_with(&ZSTD_MAGIC) {
        let decoder = zstd::Decoder::new(head.chain(input)).map_err(failed)?;
        let mut decoded = Capped { inner: decoder, left: limits.decoded_bytes, limits };
        let head = peek(&mut decoded).map_err(failed)?;
        return plain(&head, decoded, name, limits);
    }
    plain(&head, Capped { inner: input, left: limits.decoded_bytes, limits }, name, limits)
}

/// Reads a file that is not compressed, or no longer.
fn plain(
    head: &[u8],
    rest: impl Read,
    name: &str,
    limits: &Limits,
) -> Result<Vec<Trace>, ReadError> {
    let head = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(head);
    let mut input = head.chain(rest);
    let first_line = head.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
    match head {
        [] => Err(ReadError::new(name, Place::File, Problem::Empty)),
        // Compressed twice, which no writer does; it would pass for a pickle.
        _ if head.starts_with(&ZSTD_MAGIC) => {
            Err(ReadError::new(name, Place::File, Problem::UnknownFormat))
        }
        [b'#', ..] => Ok(vec![csv::read(input, name, trace_name(name), limits)?]),
        // Lines without their header are named as such by the reader.
        [b'a' | b'f' | b's' | b'e' | b'm' | b'o', b',', ..] | [b'o', b'p', b',', ..] => {
            Ok(vec![csv::read(input, name, trace_name(name), limits)?])
        }
        _ if first_line.ends_with(rmm::HEADER_END.as_bytes()) => {
            let lines = ShortLines { inner: input, since_newline: 0 };
            Ok(vec![rmm::read(lines, name, trace_name(name), limits)?])
        }
        _ if head.starts_with(&PARQUET_MAGIC) => {
            Err(ReadError::new(name, Place::File, Problem::Parquet))
        }
        _ if is_pickle(head) => snapshot(&mut input, pickle::read, name, limits),
        _ if is_json(head) => snapshot(&mut input, json::read, name, limits),
        _ => Err(ReadError::new(name, Place::File, Problem::UnknownFormat)),
    }
}

/// Protocol 2 and later say so; before that, a snapshot starts by making a dictionary or list.
fn is_pickle(head: &[u8]) -> bool {
    matches!(head, [0x80, 0..=9, ..] | [b'(' | b'}' | b']', ..])
}

fn is_json(head: &[u8]) -> bool {
    matches!(head.trim_ascii_start(), [b'{' | b'[', ..])
}

type ReadGraph = for<'f> fn(&'f [u8]) -> Result<(Graph<'f>, Id), (Place, Problem)>;

/// Reads a snapshot; `parse` knows its format.
fn snapshot(
    input: &mut impl Read,
    parse: ReadGraph,
    name: &str,
    limits: &Limits,
) -> Result<Vec<Trace>, ReadError> {
    let failed = |(place, problem)| ReadError { name: name.to_owned(), place, problem };
    let limit = limits.snapshot_bytes.min(MAX_SNAPSHOT_BYTES);
    let mut file = Vec::new();
    if let Err(error) = input.take(limit + 1).read_to_end(&mut file) {
        return Err(ReadError::new(name, Place::Byte(file.len() as u64), error));
    }
    if file.len() as u64 > limit {
        return Err(ReadError::new(name, Place::File, Problem::TooLarge { limit }));
    }
    let (graph, root) = parse(&file).map_err(failed)?;
    let snapshot = torch::read(&graph, root, limits).map_err(failed)?;
    drop(graph);
    drop(file);
    torch::traces(snapshot, &trace_name(name), limits).map_err(failed)
}

/// The first bytes of a stream.
fn peek(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(PEEK_BYTES);
    input.take(PEEK_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// A file's name without folders and without the endings of the formats.
fn trace_name(name: &str) -> String {
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let name = name.strip_suffix(".zst").unwrap_or(name);
    let endings = [".csv", ".pickle", ".pkl", ".json", ".log", ".txt"];
    let short = endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    if short.is_empty() { name.to_owned() } else { short.to_owned() }
}

/// Passes bytes on up to a limit, then fails.
struct Capped<'l, R> {
    inner: R,
    left: u64,
    limits: &'l Limits,
}

impl<R: Read> Read for Capped<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let decoded = self.limits.decoded_bytes - self.left;
                let text = format!("the compressed data ends early, after {decoded} decoded bytes");
                io::Error::new(error.kind(), text)
            }
            _ => error,
        })?;
        match self.left.checked_sub(got as u64) {
            Some(left) => {
                self.left = left;
                Ok(got)
            }
            None => {
                let limit = self.limits.decoded_bytes;
                Err(io::Error::other(Problem::TooLarge { limit }.to_string()))
            }
        }
    }
}

/// Longest line of a log.
const LINE_BYTES: usize = 64 << 10;

/// Passes text on until a line is too long: the csv crate would hold it whole.
struct ShortLines<R> {
    inner: R,
    since_newline: usize,
}

impl<R: Read> Read for ShortLines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(LINE_BYTES);
        let got = self.inner.read(&mut buffer[..most])?;
        self.since_newline = match buffer[..got].iter().rposition(|byte| *byte == b'\n') {
            Some(last) => got - last - 1,
            None => self.since_newline + got,
        };
        if self.since_newline > LINE_BYTES {
            return Err(io::Error::other(Problem::LongLine { limit: LINE_BYTES }.to_string()));
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests;
