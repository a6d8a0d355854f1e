//! Streams that are held, and copies that no stream orders: what it takes to give addresses other
//! memory while the program runs. And those that a move must not forget: streams that use the
//! memory and are not held, peers that it was open to, and whoever has registered it.

use crate::GRANULARITY_BYTES;
use crate::config::SimConfig;
use crate::held::{Gate, Held, PATIENCE};
use crate::refuse::refuse;
use crate::state::State;
use crate::stream::uid;
use crate::violation::Violation;
use drystone_driver::{ErrorCode, Hold, Stream};
use std::thread;
use std::time::Duration;

impl State {
    /// Holds streams and the default one, if they are idle soon. A capture on one is left alone.
    pub(crate) fn hold(&mut self, streams: &[Stream]) -> Result<Hold, ErrorCode> {
        refuse(
            ErrorCode::NotSupported,
            !self.config.can_hold_streams || !self.config.can_hold_default_stream,
        )?;
        refuse(ErrorCode::NotReady, self.holds_any() || self.is_last_queue(streams.len() + 1))?;
        let mut held = vec![Stream::DEFAULT];
        held.extend_from_slice(streams);
        refuse(ErrorCode::NotReady, !self.arrive(&held)?)?;
        Ok(Hold(self.keep(held, None)))
    }

    /// Waits until streams are idle, if they are soon.
    pub(crate) fn arrive(&mut self, streams: &[Stream]) -> Result<bool, ErrorCode> {
        let is_idle = self.drain(streams, PATIENCE)?;
        if is_idle && !self.runs(Some(streams)) {
            self.see_idle(streams)?;
        }
        Ok(is_idle)
    }

    /// Lets time pass until streams have done what they have to, if that is no longer than this.
    pub(crate) fn drain(&mut self, streams: &[Stream], most: Duration) -> Result<bool, ErrorCode> {
        let mut idle_ns = 0;
        for &stream in streams {
            let queue = self.streams.get(stream)?;
            refuse(ErrorCode::CaptureUnsupported, queue.capture.is_some())?;
            idle_ns = idle_ns.max(queue.busy_until_ns.max(queue.marked_until_ns));
        }
        let most_ns = self.clock.now_ns() + most.as_nanos() as u64;
        self.wait_until(idle_ns.min(most_ns));
        Ok(idle_ns <= most_ns)
    }

    /// The host knows of streams that they have come to a stop.
    pub(crate) fn see_idle(&mut self, streams: &[Stream]) -> Result<(), ErrorCode> {
        for &stream in streams {
            let index = self.streams.get(stream)?.index;
            self.oracle.iter_mut().for_each(|oracle| oracle.order.host_observes_stream(index));
        }
        Ok(())
    }

    /// From now on these streams stand still.
    pub(crate) fn keep(&mut self, streams: Vec<Stream>, gate: Option<Gate>) -> u64 {
        self.moved.holds += 1;
        let (number, since_ns) = (self.moved.holds, self.clock.now_ns());
        let thread = thread::current().id();
        self.held.push(Held { number, thread, streams, since_ns, gate });
        number
    }

    /// Lets the streams of a hold go.
    pub(crate) fn let_go(&mut self, hold: &Hold) {
        self.end_holds(|held| held.number == hold.0);
    }

    /// The holds are over of which that is so: what is live has its bytes behind its addresses.
    fn end_holds(&mut self, is_over: impl Fn(&Held) -> bool) {
        let over: Vec<Held> = self.held.extract_if(.., |held| is_over(held)).collect();
        for held in &over {
            let held_ns = self.clock.now_ns().saturating_sub(held.since_ns);
            self.moved.held_ns += held_ns;
            self.moved.longest_ns = self.moved.longest_ns.max(held_ns);
        }
        if !over.is_empty() {
            self.check_peers();
        }
        let Some(oracle) = self.oracle.as_mut().filter(|_| !over.is_empty()) else { return };
        for (address, bytes) in oracle.live() {
            let pieces = self.memory.resolve(address, bytes);
            oracle.settle(&mut self.log, address, pieces);
        }
    }

    /// Whether one of these stands still.
    pub(crate) fn holds_one_of(&mut self, streams: &[Stream]) -> bool {
        let is_one = |held: &Held| held.streams.iter().any(|stream| streams.contains(stream));
        self.holds_any() && self.held.iter().any(is_one)
    }

    /// Whether the calling thread holds one of these streams, or any.
    pub(crate) fn holds_itself(&mut self, streams: Option<&[Stream]>) -> bool {
        let is_meant = |stream: &Stream| streams.is_none_or(|all| all.contains(stream));
        let own = thread::current().id();
        let is_one = |held: &Held| held.thread == own && held.streams.iter().any(is_meant);
        self.holds_any() && self.held.iter().any(is_one)
    }

    /// Whether it holds streams until it makes another call.
    pub(crate) fn holds_by_call(&self) -> bool {
        let own = thread::current().id();
        self.held.iter().any(|held| held.thread == own && held.gate.is_none())
    }

    /// Whether any stream stands still.
    pub(crate) fn holds_any(&mut self) -> bool {
        self.end_holds(|held| held.gate.as_ref().is_some_and(|gate| (gate.0)()));
        !self.held.is_empty()
    }

    /// Whether so many streams that wait, with those that do, leave no queue to others.
    fn is_last_queue(&self, streams: usize) -> bool {
        let of_hold = |held: &Held| held.gate.as_ref().map_or(held.streams.len(), |_| 1);
        let held: usize = self.held.iter().map(of_hold).sum();
        self.config.connections > 0 && held + streams >= self.config.connections
    }

    /// Whether work on a stream that is not held stands behind those that are.
    pub(crate) fn is_behind_held(&mut self) -> bool {
        self.holds_any() && self.is_last_queue(0)
    }

    /// Whether streams stand still that calls wait for which map memory.
    pub(crate) fn is_mapping_held(&mut self) -> bool {
        let SimConfig { can_hold_streams, can_hold_default_stream, .. } = *self.config;
        let has_default = |held: &Held| held.streams.contains(&Stream::DEFAULT);
        self.holds_any()
            && (!can_hold_streams || !can_hold_default_stream && self.held.iter().any(has_default))
    }

    /// Whether a call has to wait that a driver may let wait for every stream. The thread that
    /// holds them would wait forever.
    pub(crate) fn waits_for_held(&mut self, function: &'static str) -> bool {
        if !self.holds_any() {
            return false;
        }
        if self.holds_itself(None) {
            self.log.add(Violation::WaitsForItself { function });
            return false;
        }
        true
    }

    /// Whether work on a stream has to wait until it is let go. The thread that holds it by a call
    /// would wait forever; what it queues otherwise is done at once.
    pub(crate) fn is_held(&mut self, stream: Stream) -> bool {
        if !self.holds_any() {
            return false;
        }
        let own = thread::current().id();
        let mut holds = self.held.iter().filter(|held| held.streams.contains(&stream));
        let Some(held) = holds.next() else { return false };
        if held.thread == own && held.gate.is_none() {
            self.log.add(Violation::HeldByItself { stream });
        }
        held.thread != own
    }

    /// Begins a copy between two ranges that are mapped and open.
    pub(crate) fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), ErrorCode> {
        self.note_copy(to, from, bytes)?;
        let is_over_bus = [to, from].iter().any(|&at| self.memory.vm.leads_to_host(at));
        let duration_ns = match is_over_bus {
            true => bytes as f64 / self.config.bus_bytes_per_ns,
            // Read and written.
            false => 2.0 * bytes as f64 / self.config.copied_bytes_per_ns,
        };
        let begin_ns = self.copied_until_ns.max(self.clock.now_ns());
        self.copied_until_ns = begin_ns + duration_ns as u64;
        self.copies.extend([(from, from + bytes), (to, to + bytes)]);
        self.moved.copied_bytes += bytes;
        Ok(())
    }

    /// Bytes are copied, by nobody's stream, or to where nobody's block is.
    pub(crate) fn note_copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), ErrorCode> {
        let resolve = |address| self.memory.resolve(address, bytes).ok_or(ErrorCode::InvalidValue);
        let (from, to) = (resolve(from)?, resolve(to)?);
        self.oracle.iter_mut().for_each(|oracle| oracle.copied(&mut self.log, &from, &to));
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

impl State {
    /// Before a range is unmapped.
    pub(crate) fn note_bystanders(&mut self, address: u64, bytes: u64, is_held: bool) {
        let end = address + bytes;
        let registered = &self.bystanders.registered;
        if registered.iter().any(|&(from, to)| from < end && address < to) {
            self.log.add(Violation::RegisteredMemoryGone { address, bytes });
        }
        if is_held {
            self.check_users_are_held(address, bytes);
            self.note_peers(address, bytes);
        }
    }

    /// Whoever has used what is live there may do so again at any time.
    fn check_users_are_held(&mut self, address: u64, bytes: u64) {
        let Some(oracle) = &self.oracle else { return };
        for (stream, index, (address, bytes)) in oracle.users_within(address, bytes) {
            let is_there = self.streams.get(stream).is_ok_and(|queue| queue.index == index);
            if is_there && !self.is_among_held(stream) {
                let stream = uid(self.config.ordinal, index);
                self.log.add(Violation::NotHeld { address, bytes, stream });
                break;
            }
        }
    }

    fn note_peers(&mut self, address: u64, bytes: u64) {
        let Some(oracle) = self.oracle.as_ref().filter(|_| !self.peers.is_empty()) else { return };
        for granule in (address..address + bytes).step_by(GRANULARITY_BYTES as usize) {
            let peers = self.memory.vm.peers_at(granule).unwrap_or(0);
            if oracle.is_live_within(granule, GRANULARITY_BYTES) {
                self.bystanders.lifted.push((granule, peers));
            }
        }
    }

    /// Streams go on: what was lifted under them is open again to whom it was open before.
    pub(crate) fn check_peers(&mut self) {
        for (address, peers) in std::mem::take(&mut self.bystanders.lifted) {
            let now = self.memory.vm.peers_at(address).unwrap_or(0);
            if let (true, Some(&peer)) = (now < peers, self.peers.get(now as usize)) {
                let bytes = GRANULARITY_BYTES;
                self.log.add(Violation::NotOpenToPeer { address, bytes, peer });
            }
        }
    }

    /// Whether a hold is about this stream, too.
    fn is_among_held(&self, stream: Stream) -> bool {
        self.held.iter().any(|held| held.streams.contains(&stream))
    }
}
