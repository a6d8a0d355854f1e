//! [`Recording`]: what a program asks of an allocator, written as a trace that `drystone compare`
//! and the like read (gpu-alloc-trace v1, `docs/use/traces.md`).
//!
//! Invariants: a block is written when it was given and before it is taken back, so that events of
//! one address are in order whichever threads they are of. The file has whole lines, whenever the
//! program is killed, and none that follow one that could not be written. A request that is served
//! meanwhile waits for the line, and for the file now and then; where nothing is recorded it costs
//! one load.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use drystone_core::{BlockState, PoolId, SegmentView, StreamId};
use parking_lot::Mutex;

use crate::observers::{Observer, Observers};

/// Pools have numbers up to this.
const POOL_MAX: usize = 254;

/// The recorder of an allocator: at most one recording at a time.
#[derive(Debug)]
pub(crate) struct Recorder {
    observers: Arc<Observers>,
    lines: Mutex<Option<Lines>>,
}

#[derive(Debug)]
struct Lines {
    file: BufWriter<File>,
    /// Where a line is made, to be written at once.
    text: String,
    begun: Instant,
    /// By address: number, bytes, stream, pool.
    live: BTreeMap<u64, (u32, u64, usize, usize)>,
    spare: BinaryHeap<Reverse<u32>>,
    next: u32,
    iterations: u64,
    /// Captures that have begun: stream and pool of each.
    captures: Vec<(usize, usize)>,
    events: u64,
    failed: Option<io::Error>,
}

impl Lines {
    fn line(&mut self, op: char, id: u64, bytes: u64, stream: usize, pool: usize) {
        if self.failed.is_some() {
            return;
        }
        // Of 584 years.
        let time_ns = self.begun.elapsed().as_nanos() as u64;
        self.text.clear();
        // Text takes whatever is written to it.
        let _ = writeln!(self.text, "{op},{id},{bytes},{stream},{time_ns},{pool}");
        // What no longer fits into the buffer goes to the file without this line.
        self.failed = self.file.write_all(self.text.as_bytes()).err();
        self.events += 1;
    }

    fn allocated(&mut self, address: u64, bytes: u64, stream: usize, pool: usize) {
        match self.live.get(&address) {
            // It was live when the recording began.
            Some(&(_, of, own, its)) if (of, own, its) == (bytes, stream, pool) => return,
            // It was being freed when the recording began, by who did not know of that.
            Some(_) => self.freed(address),
            None => {}
        }
        let id = self.spare.pop().map_or(self.next, |Reverse(id)| id);
        self.next = self.next.max(id + 1);
        self.live.insert(address, (id, bytes, stream, pool));
        self.line('a', id.into(), bytes, stream, pool);
    }

    /// A request for a pool came from a stream that is captured, or is not. A capture has one line
    /// where it begins, of the first of its streams that asked, and one where it ends.
    fn looked(&mut self, stream: usize, pool: usize, is_captured: bool) {
        let found = self.captures.iter().position(|&(captured, _)| captured == stream);
        match found {
            Some(at) if !is_captured => {
                let (stream, pool) = self.captures.swap_remove(at);
                self.line('d', 0, 0, stream, pool);
            }
            None if is_captured && self.captures.iter().all(|&(_, of)| of != pool) => {
                self.captures.push((stream, pool));
                self.line('c', 0, 0, stream, pool);
            }
            _ => {}
        }
    }

    fn captures_ended(&mut self, pool: usize) {
        for (stream, of) in std::mem::take(&mut self.captures) {
            match of == pool {
                true => self.line('d', 0, 0, stream, pool),
                false => self.captures.push((stream, of)),
            }
        }
    }

    fn freed(&mut self, address: u64) {
        if let Some((id, bytes, stream, pool)) = self.live.remove(&address) {
            self.spare.push(Reverse(id));
            self.line('f', id.into(), bytes, stream, pool);
        }
    }
}

/// Streams are numbered from 1: 0 is the default stream's, which may be any of them here.
const fn number(stream: StreamId) -> usize {
    stream.index() + 1
}

fn number_of_pool(pool: PoolId) -> usize {
    pool.index().min(POOL_MAX)
}

impl Recorder {
    pub(crate) fn new(observers: Arc<Observers>) -> Self {
        Self { observers, lines: Mutex::default() }
    }

    /// Begins a recording with what is live. `snapshot` is asked with the recorder held, so that
    /// nothing is given or taken back past it.
    pub(crate) fn begin(
        self: &Arc<Self>,
        path: &Path,
        snapshot: impl FnOnce() -> Vec<SegmentView>,
    ) -> io::Result<Recording> {
        let mut lines = self.lines.lock();
        if lines.is_some() {
            let message = "the allocator is being recorded already";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        let mut file = BufWriter::new(File::create(path)?);
        writeln!(file, "# gpu-alloc-trace v1\nop,id,bytes,stream,time_ns,pool")?;
        let mut begun = Lines {
            file,
            text: String::new(),
            begun: Instant::now(),
            live: BTreeMap::new(),
            spare: BinaryHeap::new(),
            next: 0,
            iterations: 0,
            captures: Vec::new(),
            events: 0,
            failed: None,
        };
        self.observers.add(Observer::Recorder);
        for segment in snapshot() {
            let live = segment.blocks.iter().filter(|block| block.state == BlockState::Live);
            for block in live {
                let (bytes, stream) = (block.requested_bytes, block.stream + 1);
                begun.allocated(block.address, bytes, stream, segment.pool.min(POOL_MAX));
            }
        }
        *lines = Some(begun);
        Ok(Recording { recorder: Arc::clone(self), is_over: false })
    }

    #[cold]
    fn with(&self, write: impl FnOnce(&mut Lines)) {
        if let Some(lines) = &mut *self.lines.lock() {
            write(lines);
        }
    }

    /// A request came from a stream that is captured, or is not: asked where a capture is known of.
    #[cold]
    pub(crate) fn looked(&self, pool: PoolId, stream: StreamId, is_captured: bool) {
        let pool = number_of_pool(pool);
        self.with(|lines| lines.looked(number(stream), pool, is_captured));
    }

    /// Every capture is over whose requests the pool served.
    #[cold]
    pub(crate) fn captures_ended(&self, pool: PoolId) {
        self.with(|lines| lines.captures_ended(number_of_pool(pool)));
    }

    #[cold]
    pub(crate) fn allocated(&self, pool: PoolId, stream: StreamId, address: u64, bytes: u64) {
        let pool = number_of_pool(pool);
        self.with(|lines| lines.allocated(address, bytes, number(stream), pool));
    }

    /// Asked before the block is taken back; of a block of another size nothing is.
    #[cold]
    pub(crate) fn freed(&self, address: u64, bytes: Option<u64>) {
        self.with(|lines| {
            let known = lines.live.get(&address);
            if known.is_some_and(|known| bytes.is_none_or(|bytes| bytes == known.1)) {
                lines.freed(address);
            }
        });
    }

    /// A live block has so many bytes from now on.
    #[cold]
    pub(crate) fn resized(&self, pool: PoolId, stream: StreamId, address: u64, bytes: u64) {
        self.with(|lines| {
            lines.freed(address);
            if bytes > 0 {
                lines.allocated(address, bytes, number(stream), number_of_pool(pool));
            }
        });
    }

    #[cold]
    pub(crate) fn used(&self, address: u64, stream: StreamId) {
        self.with(|lines| {
            if let Some(&(id, bytes, own, pool)) = lines.live.get(&address)
                && own != number(stream)
            {
                lines.line('s', id.into(), bytes, number(stream), pool);
            }
        });
    }

    #[cold]
    pub(crate) fn refused(&self, pool: PoolId, stream: StreamId, bytes: u64) {
        self.with(|lines| lines.line('o', 0, bytes, number(stream), number_of_pool(pool)));
    }

    #[cold]
    pub(crate) fn trimmed(&self) {
        self.with(|lines| lines.line('e', 0, 0, 0, 0));
    }

    fn end(&self) -> io::Result<u64> {
        let ended = {
            let mut lines = self.lines.lock();
            // Before another recording can begin.
            self.observers.remove(Observer::Recorder);
            lines.take()
        };
        let Some(mut lines) = ended else { return Ok(0) };
        match lines.failed.take() {
            Some(error) => Err(error),
            None => lines.file.flush().map(|()| lines.events),
        }
    }
}

/// A recording that goes on until this is ended or dropped.
#[must_use = "dropping it ends the recording"]
#[derive(Debug)]
pub struct Recording {
    recorder: Arc<Recorder>,
    /// Ended: the recorder may have another by now.
    is_over: bool,
}

impl Recording {
    /// Says that an iteration of the program is over: reports count by them.
    pub fn mark_iteration(&self) {
        self.recorder.with(|lines| {
            lines.line('m', lines.iterations, 0, 0, 0);
            lines.iterations += 1;
        });
    }

    /// Says that the program has waited until the device was idle, which the allocator does not
    /// see: in a replay the device is idle then, too.
    pub fn mark_wait(&self) {
        self.recorder.with(|lines| lines.line('w', 0, 0, 0, 0));
    }

    /// Writes out what is recorded so far; the recording goes on.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn flush(&self) -> io::Result<()> {
        match &mut *self.recorder.lines.lock() {
            Some(lines) => lines.file.flush(),
            None => Ok(()),
        }
    }

    /// Ends the recording, and says how many events it has.
    ///
    /// # Errors
    /// The file could not be written, now or before.
    pub fn end(mut self) -> io::Result<u64> {
        self.is_over = true;
        self.recorder.end()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.is_over {
            // Who wants to know of a failure ends it.
            let _ = self.recorder.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use drystone_driver::{CaptureMode, Stream};
    use drystone_sim::{SimConfig, SimDevice};

    use crate::{Allocator, Options, PoolId};

    fn text(path: &std::path::Path) -> String {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n'), "torn: {:?}", text.lines().last());
        text
    }

    /// The ops of a recording, with stream and pool of those that have them.
    fn ops(text: &str) -> Vec<String> {
        let cells = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
        text.lines().skip(2).map(cells).map(|c| format!("{}{}{}", c[0], c[3], c[5])).collect()
    }

    #[test]
    fn captures_are_written_as_they_are_found_and_ended() {
        let device = SimDevice::new(SimConfig::default());
        let (driver, streams) = (device.clone(), [device.create_stream(), device.create_stream()]);
        let allocator = Allocator::new(Arc::new(driver), &Options::default()).unwrap();
        let [own, other] = streams.map(|stream| allocator.add_stream(stream).unwrap());
        let file = tempfile::NamedTempFile::new().unwrap();
        let recording = allocator.record(file.path()).unwrap();
        let pool = allocator.add_pool();
        let take = |pool, stream| allocator.allocate_raw(pool, stream, 4 << 20).unwrap().address;
        // A pool that serves requests which no capture makes.
        allocator.expect_capture(pool).unwrap();
        let kept = take(pool, own);
        allocator.end_captures(pool);
        allocator.free(kept).unwrap();
        // The same with a capture, which a request of another stream does not belong to.
        allocator.expect_capture(pool).unwrap();
        device.begin_capture(streams[0], CaptureMode::Global).unwrap();
        let kept = take(pool, own);
        take(PoolId::DEFAULT, other);
        allocator.free(kept).unwrap();
        take(pool, own);
        device.end_capture(streams[0]).unwrap();
        allocator.end_captures(pool);
        recording.mark_wait();
        // One whose end nobody tells of is over with the next request of its stream.
        device.begin_capture(streams[1], CaptureMode::Relaxed).unwrap();
        take(pool, other);
        device.end_capture(streams[1]).unwrap();
        take(PoolId::DEFAULT, other);
        recording.end().unwrap();
        let [a, b] = [own, other].map(|stream| stream.index() + 1);
        let expected =
            format!("a{a}1 f{a}1 c{a}1 a{a}1 a{b}0 f{a}1 a{a}1 d{a}1 w00 c{b}1 a{b}1 d{b}1 a{b}0");
        assert_eq!(ops(&text(file.path())).join(" "), expected);
    }

    #[test]
    fn lines_are_whole_at_every_moment_and_right_from_the_start() {
        let device = SimDevice::new(SimConfig::default());
        let allocator = Allocator::new(Arc::new(device), &Options::default()).unwrap();
        let stream = allocator.add_stream(Stream::DEFAULT).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let block = allocator.allocate(stream, 4000).unwrap();
        let address = block.address();
        let seen = allocator.snapshot();
        // Freed by a thread that looked before the recording began, after this looked.
        drop(block);
        let recording = allocator.engine.recorder.begin(file.path(), || seen).unwrap();
        let block = allocator.allocate(stream, 3000).unwrap();
        assert_eq!(block.address(), address);
        drop(block);
        for size in 1..1000 {
            drop(allocator.allocate(stream, size).unwrap());
            if size > 500 {
                text(file.path());
            }
        }
        // Put back where it was.
        let block = allocator.allocate_raw(PoolId::DEFAULT, stream, 1 << 20).unwrap();
        allocator.free(block.address).unwrap();
        let place = block.address..block.address + block.bytes;
        let put = allocator.allocate_at(PoolId::DEFAULT, stream, 1 << 20, place).unwrap();
        assert_eq!(put, Some(block));
        allocator.free(block.address).unwrap();
        recording.end().unwrap();
        let all = text(file.path());
        let lines: Vec<Vec<&str>> =
            all.lines().skip(2).map(|line| line.split(',').take(3).collect()).collect();
        let [first, stale, second, ..] = &lines[..] else { panic!("{all}") };
        assert_eq!((&first[..], stale[0]), (&["a", "0", "4000"][..], "f"));
        assert_eq!(&second[..], ["a", "0", "3000"]);
        assert_eq!(lines.len(), 2 * 1003);
    }
}
