//! Builds a [`Trace`] out of a file's events: the one place where readers meet the model.
//!
//! Invariant: what comes out of [`Builder::finish`] keeps every invariant of the model. Files name
//! blocks and streams as they like; here the smallest free block number is always taken, and
//! streams are numbered in ascending order of their values, so that files whose streams are
//! already dense keep their numbers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::error::Problem;
use super::limits::{Limits, MAX_REQUEST_BYTES};
use crate::model::{Event, Kind, Trace};

/// Stream number that stands for "another stream, which one is not recorded".
pub(super) const OTHER_STREAM: u16 = u16::MAX;

/// Raw stream values, numbered in order of appearance; 0 is always there.
struct Streams {
    raw: Vec<u64>,
    numbers: HashMap<u64, u16>,
    last: (u64, u16),
}

impl Streams {
    fn number(&mut self, raw: u64) -> Result<u16, Problem> {
        if self.last.0 == raw {
            return Ok(self.last.1);
        }
        let number = match self.numbers.get(&raw) {
            Some(&number) => number,
            None => {
                let limit = u64::from(OTHER_STREAM);
                let number = u16::try_from(self.raw.len())
                    .ok()
                    .filter(|number| *number < OTHER_STREAM)
                    .ok_or(Problem::TooMany { what: "streams", limit })?;
                self.raw.push(raw);
                self.numbers.insert(raw, number);
                number
            }
        };
        self.last = (raw, number);
        Ok(number)
    }

    /// Sorts the values; returns them, and for each old number the new one.
    fn sorted(mut self) -> (Vec<u64>, Vec<u16>) {
        let mut renumbered = vec![0; self.raw.len()];
        let old = self.numbers;
        self.raw.sort_unstable();
        for (new, raw) in self.raw.iter().enumerate() {
            if let Some(&old) = old.get(raw) {
                // Cannot truncate: `number` hands out no more than 65,535 numbers.
                renumbered[usize::from(old)] = new as u16;
            }
        }
        (self.raw, renumbered)
    }
}

/// A live block as its allocation described it.
#[derive(Clone, Copy)]
pub(super) struct Live {
    pub(super) bytes: u64,
    pub(super) stream: u16,
    pub(super) pool: u8,
}

pub(super) struct Built {
    pub(super) trace: Trace,
    /// Raw stream values by dense number.
    pub(super) streams: Vec<u64>,
}

/// Takes events in program order.
pub(super) struct Builder {
    events: Vec<Event>,
    most_events: u64,
    /// By block number; entries of free numbers are stale.
    live: Vec<Live>,
    free_numbers: BinaryHeap<Reverse<u32>>,
    streams: Streams,
    pools: u8,
    /// Streams that are captured, with the pool of each.
    captures: Vec<(u16, u8)>,
    uses_other_stream: bool,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Builder {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            events: Vec::new(),
            most_events: limits.events,
            live: Vec::new(),
            free_numbers: BinaryHeap::new(),
            streams: Streams { raw: vec![0], numbers: HashMap::from([(0, 0)]), last: (0, 0) },
            pools: 1,
            captures: Vec::new(),
            uses_other_stream: false,
            first_ns: None,
            last_ns: 0,
        }
    }

    /// Events so far: the index of the next one.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// The number of a raw stream value.
    pub(super) fn stream(&mut self, raw: u64) -> Result<u16, Problem> {
        self.streams.number(raw)
    }

    /// The raw value behind a number that [`stream`](Self::stream) gave out.
    pub(super) fn raw_stream(&self, number: u16) -> u64 {
        self.streams.raw.get(usize::from(number)).copied().unwrap_or(0)
    }

    pub(super) fn live(&self, block: u32) -> Live {
        self.live[block as usize]
    }

    #[inline]
    fn push(&mut self, event: Event) -> Result<(), Problem> {
        let time_ns = event.time_ns;
        if self.events.len() as u64 >= self.most_events {
            return Err(Problem::TooManyEvents { limit: self.most_events });
        }
        let first_ns = *self.first_ns.get_or_insert(time_ns);
        if time_ns < self.last_ns {
            return Err(Problem::TimeBack { before_ns: self.last_ns, time_ns });
        }
        self.last_ns = time_ns;
        self.events.push(Event { time_ns: time_ns - first_ns, ..event });
        Ok(())
    }

    /// Allocates; returns the number of the block.
    #[inline]
    pub(super) fn allocate(
        &mut self,
        time_ns: u64,
        bytes: u64,
        stream: u16,
        pool: u8,
    ) -> Result<u32, Problem> {
        if bytes == 0 || bytes > MAX_REQUEST_BYTES {
            return Err(Problem::Size { bytes });
        }
        let live = Live { bytes, stream, pool };
        let block = match self.free_numbers.pop() {
            Some(Reverse(block)) => {
                self.live[block as usize] = live;
                block
            }
            None => {
                let limit = u64::from(u32::MAX);
                let block = u32::try_from(self.live.len())
                    .map_err(|_| Problem::TooMany { what: "live blocks", limit })?;
                self.live.push(live);
                block
            }
        };
        self.use_pool(pool);
        self.push(Event { time_ns, bytes, block, stream, pool, kind: Kind::Allocate })?;
        Ok(block)
    }

    fn use_pool(&mut self, pool: u8) {
        self.pools = self.pools.max(pool.saturating_add(1));
    }

    #[inline]
    pub(super) fn free(&mut self, time_ns: u64, block: u32) -> Result<(), Problem> {
        let Live { bytes, stream, pool } = self.live(block);
        self.free_numbers.push(Reverse(block));
        self.push(Event { time_ns, bytes, block, stream, pool, kind: Kind::Free })
    }

    /// A live block is also used on `stream`, which may be [`OTHER_STREAM`]. That it is used on its
    /// own stream goes without saying, and leaves no event.
    pub(super) fn record_stream(
        &mut self,
        time_ns: u64,
        block: u32,
        stream: u16,
    ) -> Result<(), Problem> {
        let Live { bytes, stream: own, pool } = self.live(block);
        if stream == own {
            return Ok(());
        }
        self.uses_other_stream |= stream == OTHER_STREAM;
        self.push(Event { time_ns, bytes, block, stream, pool, kind: Kind::RecordStream })
    }

    /// A kind without a block, stream or pool.
    pub(super) fn mark(&mut self, time_ns: u64, kind: Kind) -> Result<(), Problem> {
        self.push(Event::bare(time_ns, kind))
    }

    /// A capture begins on a stream, whose requests a pool serves.
    pub(super) fn begin_capture(
        &mut self,
        time_ns: u64,
        stream: u16,
        pool: u8,
    ) -> Result<(), Problem> {
        let is_captured = self.captures.iter().any(|&(captured, _)| captured == stream);
        if stream == 0 || is_captured {
            return Err(Problem::Capture { stream: self.raw_stream(stream) });
        }
        self.captures.push((stream, pool));
        self.use_pool(pool);
        self.push(Event { stream, pool, ..Event::bare(time_ns, Kind::CaptureBegin) })
    }

    /// The capture that began on a stream is over.
    pub(super) fn end_capture(&mut self, time_ns: u64, stream: u16) -> Result<(), Problem> {
        let found = self.captures.iter().position(|&(captured, _)| captured == stream);
        let Some(found) = found else {
            return Err(Problem::NoCapture { stream: self.raw_stream(stream) });
        };
        let (_, pool) = self.captures.swap_remove(found);
        self.push(Event { stream, pool, ..Event::bare(time_ns, Kind::CaptureEnd) })
    }

    /// An allocation that failed when recorded.
    pub(super) fn out_of_memory(
        &mut self,
        time_ns: u64,
        bytes: u64,
        stream: u16,
        pool: u8,
    ) -> Result<(), Problem> {
        self.use_pool(pool);
        self.push(Event { bytes, stream, pool, ..Event::bare(time_ns, Kind::OutOfMemory) })
    }

    pub(super) fn finish(self, name: String) -> Built {
        let Self { mut events, streams, .. } = self;
        let (raw, renumbered) = streams.sorted();
        let mut count = raw.len() as u16;
        let other = count;
        count += u16::from(self.uses_other_stream);
        let in_order = renumbered.iter().enumerate().all(|(old, new)| old == usize::from(*new));
        if !in_order || self.uses_other_stream {
            for event in &mut events {
                event.stream = renumbered.get(usize::from(event.stream)).copied().unwrap_or(other);
            }
        }
        events.shrink_to_fit();
        let trace = Trace {
            name,
            events,
            // Cannot truncate: `allocate` checks it.
            blocks: self.live.len() as u32,
            streams: count,
            pools: self.pools,
            ..Trace::default()
        };
        Built { trace, streams: raw }
    }
}
