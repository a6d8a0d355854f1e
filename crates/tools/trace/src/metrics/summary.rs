//! What a trace holds by itself, before anything replays it.

use crate::model::{Event, Kind, Trace};

/// Requests whose size lies in `(upper / 2, upper]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SizeClass {
    /// Largest size of the class, in bytes: a power of two.
    pub upper_bytes: u64,
    /// Requests.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of the peak's bytes, how many are in this class.
    pub peak_bytes: u64,
}

/// Requests of one stream or pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Share {
    /// Requests.
    pub allocations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Peak of its requested bytes.
    pub peak_bytes: u64,
}

/// How long blocks live, in events between allocation and free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Lifetimes {
    /// Half of the freed blocks live no longer.
    pub median_events: u64,
    /// Nine tenths live no longer.
    pub p90_events: u64,
    /// Ninety-nine hundredths live no longer.
    pub p99_events: u64,
    /// Never freed within the trace.
    pub never_freed: u64,
    /// Freed in the iteration they were made in; all freed ones where there are no iterations.
    pub within_iteration: u64,
}

/// What a trace holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Events.
    pub events: u64,
    /// Requests.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Blocks recorded as used on another stream.
    pub record_streams: u64,
    /// Times the cache was given back.
    pub empty_caches: u64,
    /// Iteration ends.
    pub iterations: u64,
    /// Requests that failed when recorded.
    pub out_of_memory_events: u64,
    /// Times the host waited until the device was idle.
    pub host_waits: u64,
    /// Captures begun.
    pub captures: u64,
    /// Length, in nanoseconds.
    pub duration_ns: u64,
    /// Different sizes among the requests.
    pub distinct_sizes: u64,
    /// Peak of the requested bytes of live blocks.
    pub peak_requested_bytes: u64,
    /// What any allocator needs at least: the same with what graphs keep, of a pool in which
    /// something was captured the most that was live there so far. Its addresses are in the graphs,
    /// which use them at every launch.
    pub needed_bytes: u64,
    /// Index of the event that first reached it.
    pub peak_event: usize,
    /// Live blocks at the peak.
    pub peak_blocks: u64,
    /// Requested bytes of blocks never freed.
    pub left_bytes: u64,
    /// Peak of the requested bytes within each iteration.
    pub iteration_peak_bytes: Vec<u64>,
    /// By size, ascending; empty classes are left out.
    pub sizes: Vec<SizeClass>,
    /// How long blocks live.
    pub lifetimes: Lifetimes,
    /// By dense stream number.
    pub streams: Vec<Share>,
    /// By dense pool number.
    pub pools: Vec<Share>,
}

/// A live block, while the trace is read.
#[derive(Clone, Copy, Default)]
struct Live {
    bytes: u64,
    event: usize,
    iteration: u32,
    stream: u16,
    pool: u8,
    is_live: bool,
}

/// Sums over one stream or pool, with what is live now.
#[derive(Clone, Copy, Default)]
struct Running {
    share: Share,
    live_bytes: u64,
    /// Graphs use its memory.
    is_captured: bool,
}

impl Running {
    /// What graphs keep beside what is live.
    const fn kept_bytes(&self) -> u64 {
        if self.is_captured { self.share.peak_bytes - self.live_bytes } else { 0 }
    }

    fn allocate(&mut self, bytes: u64) {
        self.share.allocations += 1;
        self.share.bytes = self.share.bytes.saturating_add(bytes);
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.share.peak_bytes = self.share.peak_bytes.max(self.live_bytes);
    }
}

struct Reading {
    live: Vec<Live>,
    requested_bytes: u64,
    live_blocks: u64,
    iteration_peak_bytes: u64,
    streams: Vec<Running>,
    pools: Vec<Running>,
    /// By logarithm of the size.
    classes: [SizeClass; 65],
    ages: Vec<u32>,
    summary: Summary,
}

impl Summary {
    /// Reads a whole trace.
    pub fn of(trace: &Trace) -> Self {
        let mut reading = Reading::new(trace);
        for (index, event) in trace.events.iter().enumerate() {
            match event.kind {
                Kind::Allocate => reading.allocate(index, event),
                Kind::Free => reading.free(index, event),
                Kind::RecordStream => reading.summary.record_streams += 1,
                Kind::EmptyCache => reading.summary.empty_caches += 1,
                Kind::Iteration => reading.iteration(),
                Kind::OutOfMemory => reading.summary.out_of_memory_events += 1,
                Kind::HostWait => reading.summary.host_waits += 1,
                Kind::CaptureBegin => reading.begin_capture(event),
                Kind::CaptureEnd => {}
            }
        }
        reading.finish(trace)
    }
}

impl Reading {
    fn new(trace: &Trace) -> Self {
        let class = |log: usize| SizeClass {
            upper_bytes: 1u64.checked_shl(log as u32).unwrap_or(u64::MAX),
            ..SizeClass::default()
        };
        Self {
            live: vec![Live::default(); trace.blocks as usize],
            requested_bytes: 0,
            live_blocks: 0,
            iteration_peak_bytes: 0,
            streams: vec![Running::default(); usize::from(trace.streams)],
            pools: vec![Running::default(); usize::from(trace.pools)],
            classes: std::array::from_fn(class),
            ages: Vec::with_capacity(trace.events.len() / 2),
            summary: Summary { events: trace.events.len() as u64, ..Summary::default() },
        }
    }

    fn allocate(&mut self, index: usize, event: &Event) {
        let bytes = event.bytes;
        let summary = &mut self.summary;
        summary.allocations += 1;
        self.requested_bytes = self.requested_bytes.saturating_add(bytes);
        self.live_blocks += 1;
        self.iteration_peak_bytes = self.iteration_peak_bytes.max(self.requested_bytes);
        if self.requested_bytes > summary.peak_requested_bytes {
            summary.peak_requested_bytes = self.requested_bytes;
            summary.peak_event = index;
            summary.peak_blocks = self.live_blocks;
        }
        let class = &mut self.classes[size_class(bytes)];
        class.allocations += 1;
        class.bytes = class.bytes.saturating_add(bytes);
        if let Some(stream) = self.streams.get_mut(usize::from(event.stream)) {
            stream.allocate(bytes);
        }
        if let Some(pool) = self.pools.get_mut(usize::from(event.pool)) {
            pool.allocate(bytes);
        }
        let kept_bytes: u64 = self.pools.iter().map(Running::kept_bytes).sum();
        let with_graphs = self.requested_bytes.saturating_add(kept_bytes);
        summary.needed_bytes = summary.needed_bytes.max(with_graphs);
        if let Some(live) = self.live.get_mut(event.block as usize) {
            *live = Live {
                bytes,
                event: index,
                iteration: summary.iterations as u32,
                stream: event.stream,
                pool: event.pool,
                is_live: true,
            };
        }
    }

    fn free(&mut self, index: usize, event: &Event) {
        self.summary.frees += 1;
        let Some(slot) = self.live.get_mut(event.block as usize) else {
            return;
        };
        let live = std::mem::take(slot);
        if !live.is_live {
            return;
        }
        self.requested_bytes = self.requested_bytes.saturating_sub(live.bytes);
        self.live_blocks -= 1;
        self.ages.push(u32::try_from(index - live.event).unwrap_or(u32::MAX));
        if live.iteration == self.summary.iterations as u32 {
            self.summary.lifetimes.within_iteration += 1;
        }
        let stream = self.streams.get_mut(usize::from(live.stream));
        let pool = self.pools.get_mut(usize::from(live.pool));
        for running in stream.into_iter().chain(pool) {
            running.live_bytes = running.live_bytes.saturating_sub(live.bytes);
        }
    }

    fn begin_capture(&mut self, event: &Event) {
        self.summary.captures += 1;
        if let Some(pool) = self.pools.get_mut(usize::from(event.pool)) {
            pool.is_captured = true;
        }
    }

    fn iteration(&mut self) {
        self.summary.iterations += 1;
        self.summary.iteration_peak_bytes.push(self.iteration_peak_bytes);
        self.iteration_peak_bytes = self.requested_bytes;
    }

    fn finish(mut self, trace: &Trace) -> Summary {
        let mut summary = self.summary;
        summary.duration_ns = trace.events.last().map_or(0, |event| event.time_ns);
        summary.left_bytes = self.requested_bytes;
        let at = |ages: &mut Vec<u32>, part: f64| -> u64 {
            let Some(last) = ages.len().checked_sub(1) else {
                return 0;
            };
            let rank = (last as f64 * part) as usize;
            u64::from(*ages.select_nth_unstable(rank).1)
        };
        summary.lifetimes.median_events = at(&mut self.ages, 0.5);
        summary.lifetimes.p90_events = at(&mut self.ages, 0.9);
        summary.lifetimes.p99_events = at(&mut self.ages, 0.99);
        summary.lifetimes.never_freed = self.live_blocks;
        for (_, event) in live_at(trace, summary.peak_event) {
            self.classes[size_class(event.bytes)].peak_bytes += event.bytes;
        }
        summary.sizes = self.classes.iter().filter(|c| c.allocations > 0).copied().collect();
        summary.streams = self.streams.iter().map(|running| running.share).collect();
        summary.pools = self.pools.iter().map(|running| running.share).collect();
        summary.distinct_sizes = distinct_sizes(trace);
        summary
    }
}

/// The allocations live right after event `index`, with their own indices, in program order.
pub fn live_at(trace: &Trace, index: usize) -> Vec<(usize, Event)> {
    let mut maker = vec![usize::MAX; trace.blocks as usize];
    for (at, event) in trace.events.iter().enumerate().take(index.saturating_add(1)) {
        if let Some(slot) = maker.get_mut(event.block as usize) {
            match event.kind {
                Kind::Allocate => *slot = at,
                Kind::Free => *slot = usize::MAX,
                _ => {}
            }
        }
    }
    maker.retain(|at| *at != usize::MAX);
    maker.sort_unstable();
    maker.into_iter().map(|at| (at, trace.events[at])).collect()
}

/// Index of a size's class: the power of two it rounds up to.
fn size_class(bytes: u64) -> usize {
    (64 - bytes.saturating_sub(1).leading_zeros()) as usize
}

fn distinct_sizes(trace: &Trace) -> u64 {
    let requests = trace.events.iter().filter(|event| event.kind == Kind::Allocate);
    let mut sizes: Vec<u64> = requests.map(|event| event.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.len() as u64
}

#[cfg(test)]
mod tests;
