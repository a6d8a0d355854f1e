//! Streams that are held, and copies that no stream orders: what it takes to give addresses other
//! memory while the program runs.

use std::thread;

use crate::state::State;
use crate::violation::Violation;
use drystone_driver::{ErrorCode, Hold, Stream};

/// How long a stream may be at work that is to be held, in nanoseconds.
const PATIENCE_NS: u64 = 2_000_000;

/// Streams that stand still, since one thread holds them.
#[derive(Debug)]
pub(crate) struct Held {
    number: u64,
    pub(crate) thread: thread::ThreadId,
    pub(crate) streams: Vec<Stream>,
    /// Since when, in nanoseconds of the host's time.
    since_ns: u64,
}

/// What moves of memory have taken of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// How often streams were held.
    pub holds: u64,
    /// For how long in all, in nanoseconds.
    pub held_ns: u64,
    /// For how long at most at a time.
    pub longest_ns: u64,
    /// How many bytes were copied.
    pub copied_bytes: u64,
}

impl State {
    /// Holds streams and the default one, if they are idle soon. A capture on one is left alone.
    pub(crate) fn hold(&mut self, streams: &[Stream]) -> Result<Hold, ErrorCode> {
        if !self.config.can_hold_streams {
            return Err(ErrorCode::NotSupported);
        }
        let mut held = vec![Stream::DEFAULT];
        held.extend_from_slice(streams);
        let mut idle_ns = 0;
        for &stream in &held {
            let queue = self.streams.get(stream)?;
            if queue.capture.is_some() {
                return Err(ErrorCode::CaptureUnsupported);
            }
            idle_ns = idle_ns.max(queue.busy_until_ns.max(queue.marked_until_ns));
        }
        let most_ns = self.clock.now_ns() + PATIENCE_NS;
        if idle_ns > most_ns {
            self.wait_until(most_ns);
            return Err(ErrorCode::NotReady);
        }
        self.wait_until(idle_ns);
        for &stream in &held {
            let index = self.streams.get(stream)?.index;
            if let Some(oracle) = &mut self.oracle {
                oracle.order.host_observes_stream(index);
            }
        }
        self.moved.holds += 1;
        let (number, since_ns) = (self.moved.holds, self.clock.now_ns());
        let thread = thread::current().id();
        self.held = Some(Held { number, thread, streams: held, since_ns });
        Ok(Hold(number))
    }

    /// Lets the streams of a hold go: what is live has its bytes behind its addresses by then.
    pub(crate) fn let_go(&mut self, hold: &Hold) {
        let Some(held) = self.held.take_if(|held| held.number == hold.0) else { return };
        let held_ns = self.clock.now_ns().saturating_sub(held.since_ns);
        self.moved.held_ns += held_ns;
        self.moved.longest_ns = self.moved.longest_ns.max(held_ns);
        let Some(oracle) = &mut self.oracle else { return };
        for (address, bytes) in oracle.live() {
            let pieces = self.memory.resolve(address, bytes);
            oracle.settle(&mut self.log, address, pieces);
        }
    }

    /// Whether work on a stream has to wait until it is let go. The thread that holds it would wait
    /// for ever.
    pub(crate) fn is_held(&mut self, stream: Stream) -> bool {
        let Some(held) = &self.held else { return false };
        if !held.streams.contains(&stream) {
            return false;
        }
        if held.thread == thread::current().id() {
            self.log.add(Violation::HeldByItself { stream });
            return false;
        }
        true
    }

    /// Begins a copy between two ranges that are mapped and open.
    pub(crate) fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), ErrorCode> {
        let resolve = |address| self.memory.resolve(address, bytes).ok_or(ErrorCode::InvalidValue);
        let (from_pieces, to_pieces) = (resolve(from)?, resolve(to)?);
        if let Some(oracle) = &mut self.oracle {
            oracle.copied(&mut self.log, &from_pieces, &to_pieces);
        }
        // Read and written.
        let duration_ns = 2.0 * bytes as f64 / self.config.copied_bytes_per_ns;
        let begin_ns = self.copied_until_ns.max(self.clock.now_ns());
        self.copied_until_ns = begin_ns + duration_ns as u64;
        self.copies.extend([(from, from + bytes), (to, to + bytes)]);
        self.moved.copied_bytes += bytes;
        Ok(())
    }

    pub(crate) fn finish_copies(&mut self) -> Result<(), ErrorCode> {
        self.wait_until(self.copied_until_ns);
        self.copies.clear();
        Ok(())
    }

    /// Nothing may be unmapped under a copy.
    pub(crate) fn check_copies(&mut self, address: u64, bytes: u64) {
        let end = address + bytes;
        if self.copies.iter().any(|&(from, to)| from < end && address < to) {
            self.log.add(Violation::UnmapInCopy { address, bytes });
        }
    }
}
