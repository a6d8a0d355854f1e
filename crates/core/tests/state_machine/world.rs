//! The world: one heap, the fake device, the slow reference, and the program that uses them.
//!
//! Every operation compares the heap's answer with what the reference knows; [`World::verify`]
//! compares everything else. An operation whose heap answers with a plan carries it out to its
//! end, lets it fail at a step, or leaves it open while other operations happen.

mod allocate;
mod free;
mod pins;
mod plans;
mod private;

use std::collections::BTreeMap;
use std::ops::Range;

use drystone_core::{
    BlockState, Config, CrossStream, Fence, Giving, Heap, Miss, Plan, PoolId, Prefer, RequestError,
    SegmentKind, SegmentView, StateMachine, Stats, Step, StreamError, StreamId, Whole,
};

use crate::device::Device;
use crate::reference::{Away, Block, Reference};
use pins::Pinned;
pub use plans::{Carried, Fate};
use plans::{Flight, Purpose};

/// Where a run starts (B60). Sizes in bytes.
#[derive(Clone, Debug)]
pub struct Setup {
    pub kind: SegmentKind,
    pub granule_bytes: u64,
    pub cross_stream: CrossStream,
    pub left_per_handle: u64,
    pub prefer: Prefer,
    /// What the heap believes the device to have.
    pub device_bytes: u64,
    pub limit_bytes: u64,
    /// What the device has.
    pub capacity_bytes: u64,
    /// Addresses the device can give away.
    pub addresses_bytes: u64,
    pub streams: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            kind: SegmentKind::Mapped,
            granule_bytes: 2 << 20,
            cross_stream: CrossStream::Wait,
            left_per_handle: u64::MAX,
            prefer: Prefer::Memory,
            device_bytes: 256 << 20,
            limit_bytes: u64::MAX,
            capacity_bytes: 256 << 20,
            addresses_bytes: 1 << 44,
            streams: 1,
        }
    }
}

#[derive(Debug)]
pub struct World {
    pub heap: Heap,
    pub device: Device,
    pub reference: Reference,
    /// All pools, with whether they were released. The first is the default pool.
    pub pools: Vec<(PoolId, bool)>,
    /// Of each pool, how its segments are obtained.
    kinds: Vec<SegmentKind>,
    /// Of each pool, whether its segments are split.
    splits: Vec<bool>,
    flights: Vec<Flight>,
    /// Whose plan is being carried out; none for one that was left open.
    miss: Option<Miss<()>>,
    pins: BTreeMap<u64, Pinned>,
    /// Of pages that private pools gave to the program, which pool's, and the memory behind them.
    graphs: BTreeMap<u64, (usize, Vec<Range<u64>>)>,
}

impl World {
    pub fn new(setup: &Setup) -> Self {
        let mut heap = Heap::new(
            Config::new(setup.kind, setup.granule_bytes, setup.device_bytes)
                .with_limit_bytes(setup.limit_bytes)
                .with_cross_stream(setup.cross_stream)
                .with_left_per_handle(setup.left_per_handle)
                .with_prefer(setup.prefer),
        );
        heap.expect_moves();
        let mut world = Self {
            heap,
            device: Device::new(setup.capacity_bytes, setup.addresses_bytes, setup.granule_bytes),
            reference: Reference::default(),
            pools: vec![(PoolId::DEFAULT, false)],
            kinds: vec![setup.kind],
            splits: vec![true],
            flights: Vec::new(),
            miss: None,
            pins: BTreeMap::new(),
            graphs: BTreeMap::new(),
        };
        world.reference.pool_streams.add_pool(0);
        for _ in 0..setup.streams {
            world.add_stream();
        }
        world
    }

    // Streams and pools.

    pub fn add_stream(&mut self) -> StreamId {
        let stream = self.heap.add_stream();
        self.device.clocks.add(stream);
        self.reference.pool_streams.add_stream(stream.index());
        self.reference.streams.push(stream);
        stream
    }

    pub fn retire_stream(&mut self, stream: StreamId, fate: Fate) {
        let Some(at) = self.reference.streams.iter().position(|&s| s == stream) else {
            let error = self.heap.retire_stream(stream).map(|_| ()).unwrap_err();
            assert_eq!(error, StreamError::Unknown { stream });
            return;
        };
        self.reference.streams.remove(at);
        let plan = self.heap.retire_stream(stream).expect("a stream that is in use");
        let &[Step::Record { fence }] = plan.steps() else {
            panic!("a stream is retired by {:?}", plan.steps());
        };
        self.reference.retired.insert(stream, fence.point);
        self.launch(plan, Purpose::Retire(stream), fate);
    }

    pub fn add_pool(&mut self) -> PoolId {
        self.add_pool_of(self.kinds[0])
    }

    pub fn add_pool_of(&mut self, kind: SegmentKind) -> PoolId {
        let pool = self.heap.add_pool_of(kind, true);
        self.note_pool(pool, kind, true)
    }

    pub fn add_unsplit_pool(&mut self) -> PoolId {
        let pool = self.heap.add_pool_of(SegmentKind::Plain, false);
        self.note_pool(pool, SegmentKind::Plain, false)
    }

    fn note_pool(&mut self, pool: PoolId, kind: SegmentKind, is_split: bool) -> PoolId {
        assert!(self.pools.iter().all(|&(other, _)| other != pool), "{pool:?} exists (B47)");
        assert_eq!(self.heap.kind_of(pool), Ok(kind));
        self.pools.push((pool, false));
        self.reference.pool_streams.add_pool(pool.index());
        self.kinds.push(kind);
        self.splits.push(is_split);
        pool
    }

    pub fn release_pool(&mut self, number: usize) {
        let (pool, is_released) = self.pools[number];
        let released = self.heap.release_pool(pool);
        if number == 0 || is_released {
            assert_eq!(released, Err(RequestError::UnknownPool { pool }));
        } else {
            assert_eq!(released, Ok(()));
            self.pools[number].1 = true;
            self.graphs.retain(|_, (pool, _)| *pool != number);
        }
    }

    pub fn reset_peaks(&mut self) {
        self.heap.reset_peaks();
        self.reference.reset_peaks();
    }

    // The device, and memory that goes back to it.

    /// The heap is told of a fence that the device has passed, perhaps not for the first time.
    pub fn tell(&mut self, fence: Fence) {
        self.device.clocks.learn(fence);
        self.heap.fence_passed(fence);
        for block in self.reference.tell(fence) {
            self.note_complete(&block);
        }
    }

    /// The device catches up on one stream, and the heap is told.
    pub fn pass(&mut self, stream: StreamId) {
        let number = self.device.clocks.number(stream);
        self.device.clocks.progress(number, usize::MAX);
        if let Some(&fence) = self.device.clocks.passed(number).last() {
            self.tell(fence);
        }
        self.verify();
    }

    pub fn synchronize(&mut self, fate: Fate) -> Carried {
        let issued = self.reference.issued.iter();
        let fences = issued.map(|(&stream, &point)| Fence { stream, point }).collect();
        let mut quarantined = self.reference.quarantined();
        // Each waits for one plan; another one that is open has it.
        for flight in &self.flights {
            if let Purpose::Synchronize { quarantined: taken, .. } = &flight.purpose {
                quarantined.retain(|address| !taken.contains(address));
            }
        }
        let plan = self.heap.plan_synchronize();
        self.launch(plan, Purpose::Synchronize { fences, quarantined }, fate)
    }

    /// Gives memory back once; false if there was nothing to give.
    pub fn trim(&mut self, fate: Fate) -> bool {
        let before = self.state();
        let Some(plan) = self.heap.plan_trim() else {
            // Remapped granules may have gone home for it.
            assert_eq!(self.heap.stats().all, before.1.all);
            return false;
        };
        assert!(!plan.steps().is_empty(), "a trim of nothing");
        self.assert_spares_live_pools(&plan, &before.0);
        self.launch(plan, Purpose::Trim, fate) != Carried::Abandoned
    }

    /// Gives so much back once, as far as there is any.
    pub fn give(&mut self, bytes: u64, fate: Fate) {
        let before = self.state();
        let Some(plan) = Giving::of(&mut self.heap).plan(bytes, None) else {
            assert_eq!(self.heap.stats().all, before.1.all);
            return;
        };
        assert!(!plan.steps().is_empty(), "nothing is given back");
        self.assert_spares_live_pools(&plan, &before.0);
        self.launch(plan, Purpose::Trim, fate);
    }

    /// Adopts a handle that another process made, if the device has as much beside: that process
    /// had it. It counts as reserved, and backs nothing.
    pub fn adopt(&mut self, granules: u64) {
        if self.heap.config().kind == SegmentKind::Plain {
            return;
        }
        let bytes = granules * self.heap.config().granule_bytes;
        let before = self.heap.stats().all.reserved_bytes.current;
        let Some(physical) = self.device.physical_of_others(bytes) else { return };
        let named = Giving::of(&mut self.heap).adopt([bytes]);
        let after = self.heap.stats().all.reserved_bytes.current;
        assert_eq!(after - before, named.iter().map(|_| bytes).sum::<u64>());
        assert!(bytes > 0 || named.is_empty(), "a handle of nothing");
        if let Some(granule) = named.into_iter().next() {
            self.device.adopt(granule, physical);
        }
    }

    /// Moves live memory together, a step of it: for a request, or all. False if there is nothing
    /// to do. One at a time: who moves memory has a lock.
    pub fn compact(&mut self, bytes: Option<u64>, fate: Fate) -> bool {
        if self.flights.iter().any(Flight::is_alone) {
            return false;
        }
        let plan = match bytes {
            Some(bytes) => self.heap.plan_compaction_for(bytes),
            None => self.heap.plan_full_compaction(),
        };
        let Some(plan) = plan else { return false };
        assert!(!plan.steps().is_empty(), "a move of nothing");
        self.launch(plan, Purpose::Move, fate) != Carried::Abandoned
    }

    /// Takes a step towards one handle for the live block around an address. False if there is
    /// nothing to do.
    pub fn make_whole(&mut self, address: u64, fate: Fate) -> bool {
        if self.flights.iter().any(Flight::is_alone) {
            return false;
        }
        let Some(plan) = Whole::of(&mut self.heap).plan(address) else { return false };
        assert!(!plan.steps().is_empty(), "a move of nothing");
        self.launch(plan, Purpose::Move, fate) != Carried::Abandoned
    }

    /// Whether a plan is under way whose maker has the lock under which memory moves.
    pub fn is_moving(&self) -> bool {
        self.flights.iter().any(|flight| matches!(flight.purpose, Purpose::Move))
    }

    /// I12, B26: no address of a private pool is given up while the pool lives, except where a
    /// plan failed half way.
    fn assert_spares_live_pools(&self, plan: &Plan, segments: &[SegmentView]) {
        for step in plan.steps() {
            let address = match *step {
                Step::Unmap { address, .. }
                | Step::Free { address, .. }
                | Step::Unreserve { address, .. } => address,
                Step::Release { .. } => continue,
                other => panic!("a trim needs {other:?}"),
            };
            let segment = segments
                .iter()
                .find(|s| s.address <= address && address < s.address + s.bytes)
                .expect("a trim within the segments");
            // What unmapped addresses are still mapped to is nobody's.
            let is_unmapped = segment.blocks.iter().any(|block| {
                let holds = block.address <= address && address < block.address + block.bytes;
                holds && !block.state.is_backed()
            });
            let may = segment.pool == 0 || self.pools[segment.pool].1 || is_unmapped;
            assert!(may, "{step:?} takes from a pool that lives");
        }
    }

    // What must hold.

    fn state(&self) -> (Vec<SegmentView>, Stats) {
        (self.heap.snapshot(), self.heap.stats())
    }

    /// Everything that must hold after every operation.
    pub fn verify(&self) {
        self.verify_pins();
        self.verify_graphs();
        if let Err(broken) = self.heap.check() {
            panic!("{broken}");
        }
        let stats = self.heap.stats();
        self.reference.assert_stats(&stats);
        assert_eq!(stats.all.reserved_bytes.current, self.reserved_bytes(), "reserved (I8)");
        let segments = self.heap.snapshot();
        for segment in &segments {
            // The place of a released pool is taken by the next of its kind.
            let of = self.pools.iter().rposition(|(pool, _)| pool.index() == segment.pool);
            let of = of.expect("a segment's pool");
            assert_eq!(self.kinds[of], segment.kind, "kind of a pool (I12)");
            assert!(self.splits[of] || segment.blocks.len() == 1, "{segment:?} is split (I17)");
        }
        assert_eq!(stats.all.segments.current, segments.len() as u64 + self.withdrawn_segments());
        let live = self.reference.live.values();
        self.reference.pool_streams.verify(&self.heap.pool_stream_stats(), live, &segments);
        self.verify_backing(&segments);
        self.verify_blocks(&segments);
    }

    /// What the heap says of memory without an owner is what the device has (I13).
    fn verify_backing(&self, segments: &[SegmentView]) {
        let mut largest_free_bytes = 0;
        let mut owned: Vec<Range<u64>> = Vec::new();
        for block in segments.iter().flat_map(|segment| &segment.blocks) {
            match block.state {
                BlockState::Free => {
                    let physical = self.device.physical(block.address, block.bytes);
                    owned.extend(physical.unwrap_or_else(|| panic!("{block:?} is not backed")));
                    largest_free_bytes = block.bytes.max(largest_free_bytes);
                }
                BlockState::Live | BlockState::Pending | BlockState::Quarantined => {
                    owned.extend(
                        self.device.physical(block.address, block.bytes).into_iter().flatten(),
                    );
                }
                // Addresses of the others may be mapped, but nobody uses them.
                BlockState::Unmapped
                | BlockState::Remapped
                | BlockState::IdleWindow
                | BlockState::Meshed => {}
                BlockState::Claimed => {}
                other => panic!("{other:?} is a new state"),
            }
        }
        owned.sort_unstable_by_key(|range| range.start);
        let twice = owned.windows(2).find(|pair| pair[1].start < pair[0].end);
        assert_eq!(twice, None, "physical bytes behind two blocks (P1)");
        assert_eq!(self.heap.largest_free_bytes(), largest_free_bytes);
    }

    /// Every block with an owner is where it was, backed by what it was, and nothing else is.
    fn verify_blocks(&self, segments: &[SegmentView]) {
        let mut found = BTreeMap::new();
        for segment in segments {
            for &block in &segment.blocks {
                if matches!(
                    block.state,
                    BlockState::Live | BlockState::Pending | BlockState::Quarantined
                ) {
                    found.insert(block.address, (segment.pool, segment.class, block));
                }
            }
        }
        for (address, block, state) in self.expected_blocks() {
            let is_requested = state != BlockState::Quarantined;
            let pool = self.pools[block.pool].0.index();
            let (found_pool, class, view) = found.remove(&address).expect("a block");
            assert_eq!((found_pool, class), (pool, block.class));
            assert_eq!((view.address, view.bytes, view.state), (address, block.bytes, state));
            assert_eq!(view.requested_bytes, if is_requested { block.requested } else { 0 });
            assert_eq!(view.stream, block.stream.index());
            let physical = self.device.physical(address, block.bytes);
            assert_eq!(physical.as_ref(), Some(&block.physical), "{view:?} moved");
        }
        assert!(found.is_empty(), "blocks that nobody has: {found:?}");
    }

    fn expected_blocks(&self) -> impl Iterator<Item = (u64, &Block, BlockState)> {
        let live = self.reference.live.iter().map(|(&at, block)| (at, block, BlockState::Live));
        let away = self.reference.away.iter().filter_map(|(&at, (block, away))| match away {
            Away::Claimed => None,
            Away::Pending(_) => Some((at, block, BlockState::Pending)),
            Away::Quarantined => Some((at, block, BlockState::Quarantined)),
        });
        live.chain(away)
    }

    /// The program ends: one synchronisation later nothing may be left anywhere (I15).
    pub fn finish(mut self) {
        self.unpin_all();
        while !self.flights.is_empty() {
            self.resume(0, Fate::Complete);
            self.verify();
        }
        while let Some((&address, _)) = self.reference.live.first_key_value() {
            self.free(address);
        }
        self.heap.release_all_pools();
        self.pools.iter_mut().for_each(|pool| pool.1 = true);
        self.graphs.clear();
        self.synchronize(Fate::Complete);
        self.verify();
        assert!(self.reference.away.is_empty(), "blocks wait for nothing");
        while self.trim(Fate::Complete) {
            self.verify();
        }
        self.device.assert_empty();
        assert_eq!(self.heap.snapshot(), []);
        let all = self.heap.stats().all;
        assert_eq!((all.reserved_bytes.current, all.segments.current), (0, 0));
    }
}
