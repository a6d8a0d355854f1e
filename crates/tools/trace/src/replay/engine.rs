//! The replay loop, and the runs that need nothing but the loop.
//!
//! Invariant: a block's later events reach the allocator only if its allocation was served. Block
//! numbers are dense, so the only state is one address per number: no hashing and no host
//! allocation per event. What a caller wants to learn from a run is a [`Probe`].

use std::ops::{ControlFlow, Range};

use super::captures::Captures;
use super::layout::Layout;
use super::replayed::{Refusal, Replayed};
use crate::model::{Completion, Event, Kind, Trace};

/// Stands for "this block was refused or is not live"; no device has this address.
pub(super) const NOT_LIVE: u64 = u64::MAX;

/// Looks on during a pass; every method does nothing unless it is given.
pub(super) trait Probe<R: ?Sized> {
    /// A request is about to be made.
    #[inline]
    fn asked(&mut self, _allocator: &R) {}

    /// It was served or refused, which is told next.
    #[inline]
    fn answered(&mut self, _allocator: &R) {}

    /// A request was served.
    #[inline]
    fn allocated(&mut self, _index: usize, _event: &Event, _address: u64, _allocator: &R) {}

    /// A request was refused; breaking ends the pass.
    #[inline]
    fn refused(&mut self, _index: usize, _event: &Event, _refusal: Refusal) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A block that had been served was freed.
    #[inline]
    fn freed(&mut self, _index: usize, _event: &Event, _address: u64, _allocator: &R) {}

    /// Something happened that is about no block.
    #[inline]
    fn passed(&mut self, _index: usize, _event: &Event, _allocator: &R) {}
}

/// Wants to know nothing: for timing.
pub(super) struct Silent;

impl<R: ?Sized> Probe<R> for Silent {}

/// Where the live blocks are, and what is captured: the state that a pass carries.
pub(super) struct Addresses {
    of_blocks: Vec<u64>,
    captures: Captures,
}

impl Addresses {
    pub(super) fn new(trace: &Trace) -> Self {
        Self { of_blocks: vec![NOT_LIVE; trace.blocks as usize], captures: Captures::default() }
    }

    /// Ends every capture, then frees whatever is still live, in order of block numbers.
    pub(super) fn free_all<R: Replayed + ?Sized>(&mut self, allocator: &mut R) {
        self.captures.end_all(allocator);
        for slot in &mut self.of_blocks {
            if *slot != NOT_LIVE {
                allocator.free(*slot);
                *slot = NOT_LIVE;
            }
        }
    }
}

/// Drives `allocator` through the events of `range`, with times counted from `base_ns`.
pub(super) fn pass<R, P>(
    trace: &Trace,
    range: Range<usize>,
    base_ns: u64,
    addresses: &mut Addresses,
    allocator: &mut R,
    probe: &mut P,
) -> ControlFlow<()>
where
    R: Replayed + ?Sized,
    P: Probe<R>,
{
    let first = range.start;
    let mut completions = Completions::from(trace, first);
    for (offset, event) in trace.events[range].iter().enumerate() {
        let index = first + offset;
        allocator.advance(base_ns.saturating_add(event.time_ns));
        // A number beyond `blocks` breaks the model's promise; its events are passed over.
        let slot = addresses.of_blocks.get_mut(event.block as usize);
        match event.kind {
            Kind::Allocate => {
                let Some(slot) = slot else { continue };
                addresses.captures.before_use(event, allocator);
                probe.asked(allocator);
                let answer = allocator.allocate(event.bytes, event.stream, event.pool);
                probe.answered(allocator);
                match answer {
                    Ok(address) => {
                        *slot = address;
                        probe.allocated(index, event, address, allocator);
                    }
                    Err(refusal) => {
                        *slot = NOT_LIVE;
                        probe.refused(index, event, refusal)?;
                    }
                }
            }
            Kind::Free => {
                let Some(slot) = slot.filter(|slot| **slot != NOT_LIVE) else {
                    continue;
                };
                let address = std::mem::replace(slot, NOT_LIVE);
                if index >= completions.next {
                    completions.pass_on(trace, index, base_ns, allocator);
                }
                allocator.free(address);
                probe.freed(index, event, address, allocator);
            }
            Kind::RecordStream => {
                let Some(slot) = slot.filter(|slot| **slot != NOT_LIVE) else {
                    continue;
                };
                addresses.captures.before_use(event, allocator);
                allocator.record_stream(*slot, event.stream);
            }
            Kind::EmptyCache => {
                allocator.empty_cache();
                probe.passed(index, event, allocator);
            }
            Kind::Iteration => probe.passed(index, event, allocator),
            Kind::HostWait => {
                allocator.wait_for_device();
                probe.passed(index, event, allocator);
            }
            Kind::CaptureBegin | Kind::CaptureEnd => {
                addresses.captures.change(event, allocator);
                probe.passed(index, event, allocator);
            }
            Kind::OutOfMemory => {}
        }
    }
    ControlFlow::Continue(())
}

/// Walks the recorded completions beside the events.
struct Completions<'t> {
    rest: &'t [Completion],
    /// Index of the free that the first of `rest` belongs to.
    next: usize,
}

impl<'t> Completions<'t> {
    fn from(trace: &'t Trace, first: usize) -> Self {
        let start = trace.completions.partition_point(|c| (c.event as usize) < first);
        let mut this = Self { rest: &trace.completions[start..], next: usize::MAX };
        this.aim();
        this
    }

    fn aim(&mut self) {
        self.next = self.rest.first().map_or(usize::MAX, |c| c.event as usize);
    }

    /// Tells the allocator how long the streams recorded right before free `index` stay busy.
    #[cold]
    fn pass_on<R>(&mut self, trace: &Trace, index: usize, base_ns: u64, allocator: &mut R)
    where
        R: Replayed + ?Sized,
    {
        // Frees of refused blocks never come here: their completions are passed over.
        let past = self.rest.partition_point(|c| (c.event as usize) < index);
        self.rest = &self.rest[past..];
        if let Some((completion, rest)) = self.rest.split_first()
            && completion.event as usize == index
        {
            let end_ns = base_ns.saturating_add(completion.time_ns);
            for event in recorded_before(trace, index) {
                allocator.busy_until(event.stream, end_ns);
            }
            self.rest = rest;
        }
        self.aim();
    }
}

/// The stream records of the same block that lie right before free `index`.
fn recorded_before(trace: &Trace, index: usize) -> impl Iterator<Item = &Event> {
    let block = trace.events[index].block;
    let before = trace.events[..index].iter().rev();
    before.take_while(move |event| event.kind == Kind::RecordStream && event.block == block)
}

struct UntilRefused;

impl<R: ?Sized> Probe<R> for UntilRefused {
    fn refused(&mut self, _: usize, _: &Event, _: Refusal) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

/// Whether a fresh allocator serves every request of the trace; ends at the first refusal.
pub fn completes<R: Replayed + ?Sized>(trace: &Trace, allocator: &mut R) -> bool {
    let mut addresses = Addresses::new(trace);
    let all = 0..trace.events.len();
    pass(trace, all, 0, &mut addresses, allocator, &mut UntilRefused).is_continue()
}

/// The address map of a fresh allocator right after event `index`.
pub fn layout_at<R>(trace: &Trace, allocator: &mut R, index: usize) -> Option<Layout>
where
    R: Replayed + ?Sized,
{
    let mut addresses = Addresses::new(trace);
    let end = trace.events.len().min(index.saturating_add(1));
    let _ = pass(trace, 0..end, 0, &mut addresses, allocator, &mut Silent);
    allocator.layout()
}
