//! Allocating: a request, the plans it takes, and what a granted block must be.

use drystone_core::{
    BlockState, Captured, Granted, Miss, Next, Plan, RequestError, Reuse, SegmentKind, SegmentView,
    SizeClass, SizeError, StateMachine, Stats, Step, StreamError, StreamId, size,
};

use super::World;
use super::plans::{Carried, Fate, Purpose, Request};
use crate::clocks::Clock;
use crate::reference::{Block, rounded, size_class};

/// A request makes progress with every plan; no honest one needs more.
const PLANS_MAX: usize = 12;

impl World {
    /// Makes a request and carries its plans out, the `fated`-th with that fate. Returns the
    /// address if the request was served.
    pub fn allocate_with(
        &mut self,
        pool: usize,
        stream: StreamId,
        bytes: u64,
        captured: Captured,
        (fated, fate): (usize, Fate),
    ) -> Option<u64> {
        let request = Request { pool, stream, bytes };
        let before = self.state();
        match self.heap.allocate(self.pools[pool].0, stream, bytes) {
            Ok(Some(grant)) => return Some(self.take(request, grant)),
            Ok(None) => assert_eq!(self.state(), before),
            Err(error) => {
                self.assert_refusal(request, error, &before);
                return None;
            }
        }
        if self.is_moving() {
            // A miss waits for the end of it.
            return None;
        }
        let mut miss = Miss::new(self.pools[pool].0, stream, bytes, captured);
        let (mut has_failed, mut has_waited) = (false, false);
        for round in 0..PLANS_MAX {
            let mut next = self.heap.next(&mut miss);
            let is_first_move = |miss: &Miss<()>, next: &Next<Plan, ()>| {
                matches!(next, Next::Compact) && miss.is_trying()
            };
            while matches!(next, Next::CollectFences | Next::LookAtDevice)
                || is_first_move(&miss, &next)
            {
                if matches!(next, Next::LookAtDevice) {
                    miss.note_free(Some(self.device.free_bytes()));
                    // What it has left may be why the request is refused, and not the heap's limit.
                    has_failed = true;
                } else if matches!(next, Next::Compact) {
                    miss.note(self.compact(Some(bytes), Fate::Complete));
                    // What it waited for may have moved, and it begins anew.
                    has_waited = false;
                }
                // The host is told of fences by transitions alone.
                next = self.heap.next(&mut miss);
            }
            let plan = match next {
                Next::Granted(grant) => return Some(self.take(request, grant)),
                Next::CarryOut(plan) => plan,
                _ => {
                    if !has_failed {
                        self.assert_refused(request, captured);
                    }
                    return None;
                }
            };
            let orders = |step: &Step| matches!(step, Step::Record { .. } | Step::Wait { .. });
            let is_order = plan.steps().iter().all(orders);
            assert!(!is_order || captured != Captured::Own, "waits for other streams");
            let waits = plan.steps().iter().any(|step| matches!(step, Step::Wait { .. }));
            let waits_again = has_waited && waits;
            assert!(!waits_again, "{request:?} waits for other streams in vain");
            let fate = if round == fated { fate } else { Fate::Complete };
            self.miss = Some(miss);
            let carried = self.launch(plan, Purpose::Request(request), fate);
            miss = self.miss.take()?;
            match carried {
                Carried::Open => return None,
                Carried::Abandoned => has_failed = true,
                Carried::Committed(_) | Carried::HandedBack => has_waited |= waits,
            }
        }
        panic!("{request:?} is not served after {PLANS_MAX} plans");
    }

    /// A plain request, carried out to its end.
    pub fn allocate(&mut self, stream: StreamId, bytes: u64) -> Option<u64> {
        let address = self.allocate_with(0, stream, bytes, Captured::None, (0, Fate::Complete));
        self.verify();
        address
    }

    /// The heap refused a request, with no driver's help: it does so again, and changes nothing.
    fn assert_refused(&mut self, request: Request, captured: Captured) {
        let Request { pool, stream, bytes } = request;
        let own = captured == Captured::Own;
        let reuse = if own { Reuse::OwnStream } else { Reuse::Ordered };
        let before = self.state();
        let error = self.heap.request(self.pools[pool].0, stream, bytes, reuse).map(|_| ());
        self.assert_refusal(request, error.expect_err("refused before"), &before);
    }

    pub(super) fn assert_refusal(
        &self,
        request: Request,
        error: RequestError,
        before: &(Vec<SegmentView>, Stats),
    ) {
        assert_eq!(self.state(), *before, "a refusal changed something: {error}");
        let (pool, is_released) = self.pools[request.pool];
        match error {
            RequestError::Size(SizeError::Zero) => assert_eq!(request.bytes, 0),
            RequestError::Size(SizeError::TooLarge { bytes }) => {
                assert_eq!(bytes, request.bytes);
                assert!(bytes > size::BYTES_MAX - (8 << 20), "{bytes} are not too many");
            }
            RequestError::UnknownPool { pool: unknown } => {
                assert!(unknown == pool && is_released);
            }
            RequestError::Stream(StreamError::Unknown { stream }) => {
                assert_eq!(stream, request.stream);
                assert!(!self.reference.streams.contains(&stream));
            }
            RequestError::Limit { bytes, reserved_bytes, limit_bytes } => {
                assert_eq!(limit_bytes, self.heap.config().limit_bytes);
                assert_eq!(reserved_bytes, self.reserved_bytes() + self.planned_bytes());
                assert!(bytes > 0 && reserved_bytes.saturating_add(bytes) > limit_bytes);
                self.assert_nothing_fits(request);
            }
            other => panic!("{request:?} is refused: {other}"),
        }
    }

    /// The request's own free list has no block for it: growing is called for (B28).
    pub(super) fn assert_nothing_fits(&self, request: Request) {
        for segment in self.heap.snapshot() {
            if segment.pool != request.pool {
                continue;
            }
            let fits = segment.blocks.iter().find(|block| {
                block.state == BlockState::Free
                    && block.stream == request.stream.index()
                    && block.bytes >= request.bytes
            });
            assert!(fits.is_none(), "{request:?} is refused, but {fits:?} is free");
        }
    }

    pub(super) fn take(&mut self, request: Request, grant: Granted) -> u64 {
        let class = self.class_at(grant.address);
        let is_own = class == size_class(request.bytes);
        assert!(is_own || self.is_full(grant.bytes), "{grant:?} is of {class:?}");
        self.note(request, grant)
    }

    /// The program has a block, in whatever memory.
    pub(super) fn note(&mut self, request: Request, grant: Granted) -> u64 {
        let Granted { address, bytes, .. } = grant;
        let class = self.class_at(address);
        let (least, slack) = match self.kinds[request.pool] {
            // Its segment may be one that served a larger request before.
            _ if !self.splits[request.pool] => (rounded(request.bytes), u64::MAX >> 1),
            // What is kept with a block is by whose memory it is.
            SegmentKind::Plain if class == SizeClass::Large => (rounded(request.bytes), 1 << 20),
            _ => (rounded(request.bytes), 0),
        };
        assert!(bytes >= least && bytes <= least + slack, "{request:?} got {grant:?}");
        assert!(address.is_multiple_of(512) && bytes.is_multiple_of(512), "{grant:?} (I7)");
        assert!(!self.reference.overlaps(address, bytes), "{grant:?} overlaps (I1)");
        let physical = self.device.physical(address, bytes);
        let physical = physical.unwrap_or_else(|| panic!("{grant:?} is not backed (I13)"));
        assert_eq!(self.reference.sharing(&physical), None, "{grant:?} shares memory (P1)");
        let is_usable = self.reference.streams.contains(&request.stream);
        let mut work = Clock::default();
        if is_usable {
            let clock = self.device.clocks.now(request.stream);
            for range in &physical {
                let is_ordered = self.device.is_ordered(range, &clock);
                assert!(is_ordered, "{grant:?} reaches {request:?} out of order (I10)");
            }
            work = self.device.clocks.work(request.stream);
        }
        let Request { pool, stream, bytes: requested } = request;
        let uses = Vec::new();
        let is_worked = is_usable;
        let block = Block {
            address,
            requested,
            bytes,
            class,
            pool,
            stream,
            uses,
            work,
            is_worked,
            physical,
        };
        self.note_graph(pool, address, bytes);
        self.reference.grant(address, block);
        assert_eq!(self.heap.size_of(address), Ok((bytes, requested)));
        address
    }

    /// Whose memory an address lies in.
    fn class_at(&self, address: u64) -> SizeClass {
        let segments = self.heap.snapshot();
        let holds = |segment: &&SegmentView| {
            (segment.address..segment.address + segment.bytes).contains(&address)
        };
        segments.iter().find(holds).expect("a segment").class
    }

    /// Whether a block of so many bytes may be served by memory of the other class: there is no
    /// more, except what a segment rounds up. What a plan under way has created is planned still,
    /// and no longer free when the device is looked at.
    fn is_full(&self, bytes: u64) -> bool {
        let bytes = bytes + (32 << 20) + self.reserved_bytes() + 2 * self.planned_bytes();
        bytes > self.heap.config().limit_bytes.min(self.device.capacity_bytes)
    }
}
