//! Those that a move must not forget: streams that use the memory and are not held, peers that it
//! was open to, and whoever has registered it by its address.

use crate::GRANULARITY_BYTES;
use crate::state::State;
use crate::stream::uid;
use crate::violation::Violation;
use drystone_driver::Stream;

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
