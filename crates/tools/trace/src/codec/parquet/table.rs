//! A trace as one table: one row an event, for engines that query many files at once.
//!
//! Invariant: the columns are those of `docs/use/traces.md`, in their order, and none is ever null.
//! It is written only: what a trace has beyond its events is not in it.

use std::io::{self, Write};
use std::sync::Arc;

use ::parquet::basic::{Compression, ZstdLevel};
use ::parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use ::parquet::schema::parser::parse_message_type;

use crate::model::{Event, Kind, Trace};

const SCHEMA: &str = "message trace {
    REQUIRED INT64 event;
    REQUIRED INT64 time_ns;
    REQUIRED BYTE_ARRAY kind (STRING);
    REQUIRED INT64 block;
    REQUIRED INT64 bytes;
    REQUIRED INT32 stream;
    REQUIRED INT32 pool;
    REQUIRED INT64 requested_bytes;
}";
/// Rows that are held as columns at once, some 60 MB of them.
const GROUP_ROWS: usize = 1 << 20;

/// Writes a trace.
/// Errors: what the output refuses.
pub(super) fn write(trace: &Trace, output: impl Write + Send) -> io::Result<()> {
    write_groups(trace, output).map_err(|error| match error {
        ParquetError::External(error) => io::Error::other(error),
        error => io::Error::other(error),
    })
}

fn write_groups(trace: &Trace, output: impl Write + Send) -> Result<()> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let compression = Compression::ZSTD(ZstdLevel::default());
    let properties = WriterProperties::builder().set_compression(compression).build();
    let mut writer = SerializedFileWriter::new(output, schema, Arc::new(properties))?;
    let mut requested_bytes = 0_i64;
    for (number, events) in trace.events.chunks(GROUP_ROWS).enumerate() {
        let mut group = writer.next_row_group()?;
        let first = signed((number * GROUP_ROWS) as u64);
        column::<Int64Type>(&mut group, (first..).take(events.len()))?;
        column::<Int64Type>(&mut group, each(events, |event| signed(event.time_ns)))?;
        column::<ByteArrayType>(
            &mut group,
            each(events, |event| ByteArray::from(name(event.kind))),
        )?;
        column::<Int64Type>(&mut group, each(events, |event| i64::from(event.block)))?;
        column::<Int64Type>(&mut group, each(events, |event| signed(event.bytes)))?;
        column::<Int32Type>(&mut group, each(events, |event| i32::from(event.stream)))?;
        column::<Int32Type>(&mut group, each(events, |event| i32::from(event.pool)))?;
        let held = events.iter().map(|event| {
            requested_bytes = requested_bytes.saturating_add(match event.kind {
                Kind::Allocate => signed(event.bytes),
                Kind::Free => -signed(event.bytes),
                _ => 0,
            });
            requested_bytes
        });
        column::<Int64Type>(&mut group, held)?;
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn each<T>(events: &[Event], of: impl Fn(&Event) -> T) -> impl Iterator<Item = T> {
    events.iter().map(of)
}

/// The next column of a group.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, impl Write + Send>,
    values: impl Iterator<Item = T::T>,
) -> Result<()> {
    let values: Vec<_> = values.collect();
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("more columns than the schema has".to_owned()));
    };
    column.typed::<T>().write_batch(&values, None, None)?;
    column.close()
}

/// Sizes and times of traces stay far below this type's end.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a kind is called in files.
const fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Allocate => "allocate",
        Kind::Free => "free",
        Kind::RecordStream => "record stream",
        Kind::EmptyCache => "empty cache",
        Kind::Iteration => "iteration",
        Kind::OutOfMemory => "out of memory",
        Kind::HostWait => "host wait",
        Kind::CaptureBegin => "capture begins",
        Kind::CaptureEnd => "capture ends",
    }
}

#[cfg(test)]
mod tests {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use ::parquet::record::Field;

    use super::*;

    #[test]
    fn each_event_is_a_row_and_what_is_requested_is_summed() {
        let event =
            |kind, bytes, block, time_ns| Event { time_ns, bytes, block, stream: 1, pool: 0, kind };
        let trace = Trace {
            events: vec![
                event(Kind::Allocate, 512, 0, 0),
                event(Kind::Allocate, 1 << 40, 1, 5),
                event(Kind::Free, 512, 0, 9),
                event(Kind::Iteration, 0, 0, 9),
            ],
            ..Trace::default()
        };
        let mut file = Vec::new();
        write(&trace, &mut file).unwrap();
        let reader = SerializedFileReader::new(bytes(file)).unwrap();
        let rows: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().get_column_iter().map(|(_, field)| field.clone()).collect())
            .collect();
        assert_eq!(rows.len(), 4);
        let (long, int) = (Field::Long, Field::Int);
        assert_eq!(
            rows[2],
            [
                long(2),
                long(9),
                Field::Str("free".to_owned()),
                long(0),
                long(512),
                int(1),
                int(0),
                long(1 << 40),
            ]
        );
        assert_eq!(rows[3][7], long(1 << 40));
    }

    /// What the reader reads.
    fn bytes(file: Vec<u8>) -> std::fs::File {
        use std::io::Seek;
        let mut written = tempfile();
        written.write_all(&file).unwrap();
        written.rewind().unwrap();
        written
    }

    fn tempfile() -> std::fs::File {
        let path = std::env::temp_dir().join(format!("drystone-{}.parquet", std::process::id()));
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }
}
