//! Happens-before between streams and the host, by vector clocks.
//!
//! Every stream counts the work the oracle put on it. A stream's clock says how far it is ordered
//! after each stream; an event carries a copy of it; the host has one clock, because a host that
//! saw work complete orders everything queued from then on after that work. Streams of other
//! devices are counted apart, by the device: they have the same indices.

use std::collections::BTreeMap;

/// For each stream, by index, how much of its work lies before some point. Missing entries are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VectorClock {
    ticks: Vec<u64>,
    /// The same of other devices' streams, by ordinal.
    others: BTreeMap<u32, Vec<u64>>,
}

/// The later of two points.
fn join_ticks(mine: &mut Vec<u64>, theirs: &[u64]) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), 0);
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        *mine = (*mine).max(*theirs);
    }
}

impl VectorClock {
    pub(crate) fn at(&self, stream: u32) -> u64 {
        self.ticks.get(stream as usize).copied().unwrap_or(0)
    }

    pub(crate) fn join(&mut self, other: &VectorClock) {
        join_ticks(&mut self.ticks, &other.ticks);
        for (&of, theirs) in &other.others {
            join_ticks(self.others.entry(of).or_default(), theirs);
        }
    }

    /// The same on the device `own`, of a point of the device `peer`, which may be later than work
    /// of this one.
    pub(crate) fn join_of_peer(&mut self, own: u32, peer: u32, other: &VectorClock) {
        join_ticks(self.others.entry(peer).or_default(), &other.ticks);
        for (&of, theirs) in &other.others {
            let mine = if of == own { &mut self.ticks } else { self.others.entry(of).or_default() };
            join_ticks(mine, theirs);
        }
    }

    /// Whether everything before the other point is before this one, too.
    pub(crate) fn covers(&self, other: &VectorClock) -> bool {
        (0..other.ticks.len() as u32).all(|stream| self.at(stream) >= other.at(stream))
    }

    /// Counts one more piece of work on `stream` and returns its number.
    pub(crate) fn tick(&mut self, stream: u32) -> u64 {
        let index = stream as usize;
        if self.ticks.len() <= index {
            self.ticks.resize(index + 1, 0);
        }
        self.ticks[index] += 1;
        self.ticks[index]
    }
}

/// The clocks of all streams and of the host.
#[derive(Debug, Default)]
pub(crate) struct HappensBefore {
    streams: Vec<VectorClock>,
    host: VectorClock,
}

impl HappensBefore {
    /// What work queued on the stream now is ordered after.
    pub(crate) fn stream(&mut self, stream: u32) -> &mut VectorClock {
        let index = stream as usize;
        if self.streams.len() <= index {
            self.streams.resize(index + 1, VectorClock::default());
        }
        let clock = &mut self.streams[index];
        clock.join(&self.host);
        clock
    }

    pub(crate) const fn host(&self) -> &VectorClock {
        &self.host
    }

    /// The host saw that everything up to `clock` is complete.
    pub(crate) fn host_observes(&mut self, clock: &VectorClock) {
        self.host.join(clock);
    }

    pub(crate) fn host_observes_stream(&mut self, stream: u32) {
        if let Some(clock) = self.streams.get(stream as usize) {
            self.host.join(clock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HappensBefore, VectorClock};

    #[test]
    fn order_passes_through_a_chain_of_waits_only() {
        let mut order = HappensBefore::default();
        let work = order.stream(0).tick(0);
        let event = order.stream(0).clone();
        assert!(order.stream(2).at(0) < work);
        order.stream(1).join(&event);
        let relayed = order.stream(1).clone();
        order.stream(2).join(&relayed);
        assert_eq!(order.stream(2).at(0), work);
        assert_eq!(order.host().at(0), 0, "a wait on the device tells the host nothing");
    }

    #[test]
    fn what_the_host_saw_is_before_all_later_work() {
        let mut order = HappensBefore::default();
        let work = order.stream(0).tick(0);
        order.host_observes_stream(7);
        assert_eq!(order.stream(1).at(0), 0);
        order.host_observes_stream(0);
        assert_eq!(order.stream(1).at(0), work);
        let later = order.stream(0).tick(0);
        assert!(order.host().at(0) < later);
    }

    #[test]
    fn join_takes_the_larger_of_each() {
        let (mut a, mut b) = (VectorClock::default(), VectorClock::default());
        a.tick(0);
        b.tick(2);
        b.tick(2);
        a.join(&b);
        assert_eq!((a.at(0), a.at(1), a.at(2), a.at(9)), (1, 0, 2, 0));
    }
}
