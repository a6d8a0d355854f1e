//! Random operations from random starts. Operations name blocks, streams and pools by number,
//! taken modulo what there is, so that any sequence of them is a legal one and shrinks well.

use std::marker::PhantomData;

use drystone_core::{Captured, CrossStream, Prefer, SegmentKind, StateMachine};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};

use crate::runs::{MovingRuns, PrivateRuns};
use crate::world::{Fate, Setup, World};

const MIB: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub enum Transition {
    Allocate {
        pool: usize,
        stream: usize,
        bytes: u64,
        captured: Captured,
        fated: usize,
        fate: Fate,
    },
    Free {
        nth: usize,
        fate: Fate,
    },
    /// Asks for blocks, and for the last of them twice.
    GoBack {
        pool: usize,
        stream: usize,
        sizes: Vec<u64>,
        back: usize,
    },
    RecordStream {
        nth: usize,
        stream: usize,
    },
    /// Frees an address at an offset from a live one or, without any, from the first address.
    FreeBadly {
        nth: usize,
        offset: u64,
    },
    /// Frees the start of a block that is not live.
    FreeAgain {
        nth: usize,
    },
    /// The device does some items of a stream's queue.
    Progress {
        queue: usize,
        items: usize,
    },
    /// The heap is told of a fence that the device has passed.
    Tell {
        queue: usize,
        nth: usize,
    },
    Resume {
        nth: usize,
        fate: Fate,
    },
    Trim {
        fate: Fate,
    },
    /// Gives so much back for others.
    Give {
        bytes: u64,
        fate: Fate,
    },
    /// Adopts a handle of another process, of this many granules.
    Adopt {
        granules: u64,
    },
    Synchronize {
        fate: Fate,
    },
    /// Moves memory for a request, or all that can move.
    Compact {
        bytes: Option<u64>,
        fate: Fate,
    },
    /// Lets a block be one handle.
    MakeWhole {
        nth: usize,
        fate: Fate,
    },
    /// Puts the blocks of a private pool back where they were.
    PutBack {
        pool: usize,
        stream: usize,
        sizes: Vec<u64>,
    },
    ResetPeaks,
    AddStream,
    RetireStream {
        nth: usize,
        fate: Fate,
    },
    /// Uses a stream that was retired.
    UseRetired {
        nth: usize,
    },
    AddPool {
        kind: SegmentKind,
    },
    AddUnsplitPool,
    ReleasePool {
        nth: usize,
    },
    SetLimit {
        bytes: u64,
    },
    Pin {
        nth: usize,
    },
    Unpin {
        nth: usize,
    },
}

pub fn fate() -> impl Strategy<Value = Fate> {
    let stop = proptest::option::weighted(0.4, 0..8usize);
    prop_oneof![
        12 => Just(Fate::Complete),
        3 => (0..12usize, stop).prop_map(|(after, stop)| Fate::Fail { after, stop }),
        3 => (0..12usize).prop_map(|done| Fate::Open { done }),
    ]
}

fn bytes(granule_bytes: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 1..=4096u64,
        4 => (1..64u64, 0..3u64).prop_map(|(quanta, around)| quanta * 512 + around - 1),
        4 => (0..1200u64).prop_map(|around| MIB + around - 600),
        6 => (1..5u64, 0..3u64, 0..2u64).prop_map(move |(granules, around, far)| {
            granules * granule_bytes + around * (1 + 511 * far) - 512 * far
        }),
        8 => (0..4 * MIB, 1..6u64).prop_map(|(more, times)| MIB + more * times),
        3 => (0..64u32, 0..3u64)
            .prop_map(|(power, around)| ((1 << power) + around).wrapping_sub(1)),
        1 => (0..4096u64).prop_map(|less| u64::MAX - less),
        1 => Just(0),
    ]
}

fn limit(granule_bytes: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        1 => Just(MIB),
        2 => (1..4u64).prop_map(move |granules| granules * granule_bytes),
        4 => (8..64u64).prop_map(|mib| mib * MIB),
        4 => Just(u64::MAX),
    ]
}

fn kind() -> impl Strategy<Value = SegmentKind> {
    prop_oneof![3 => Just(SegmentKind::Mapped), 1 => Just(SegmentKind::Plain)]
}

fn setup() -> impl Strategy<Value = Setup> {
    let granule_bytes = prop_oneof![Just(2 * MIB), Just(4 * MIB), Just(8 * MIB)];
    let cross_stream = prop_oneof![
        1 => Just(CrossStream::Never),
        1 => Just(CrossStream::Passed),
        2 => Just(CrossStream::Wait),
    ];
    let device_bytes = prop_oneof![Just(1), Just(3 * MIB), Just(64 * MIB), Just(1024 * MIB)];
    let capacity_bytes = prop_oneof![Just(4 * MIB), Just(40 * MIB), Just(128 * MIB)];
    let addresses_bytes = prop_oneof![Just(40 * MIB), Just(512 * MIB), Just(1 << 40)];
    let left_per_handle = prop_oneof![1 => Just(u64::MAX), 2 => 1..4u64];
    let prefer = prop_oneof![Just(Prefer::Memory), Just(Prefer::Balanced), Just(Prefer::Speed)];
    let granules = (granule_bytes, left_per_handle, prefer);
    let sizes = (granules, device_bytes, capacity_bytes, addresses_bytes, 1..=4usize);
    (kind(), cross_stream, sizes).prop_flat_map(|(kind, cross_stream, sizes)| {
        let (granules, device_bytes, capacity_bytes, addresses_bytes, streams) = sizes;
        let (granule_bytes, left_per_handle, prefer) = granules;
        limit(granule_bytes).prop_map(move |limit_bytes| Setup {
            kind,
            granule_bytes,
            cross_stream,
            left_per_handle,
            prefer,
            device_bytes,
            limit_bytes,
            capacity_bytes,
            addresses_bytes,
            streams,
        })
    })
}

pub fn transitions(granule_bytes: u64) -> impl Strategy<Value = Transition> {
    let captured = prop_oneof![
        1 => Just(Captured::Own),
        1 => Just(Captured::Other),
        4 => Just(Captured::None),
    ];
    let pool = prop_oneof![3 => Just(0), 1 => 0..4usize];
    let allocate = (pool, 0..4usize, bytes(granule_bytes), captured, 0..3usize, fate()).prop_map(
        |(pool, stream, bytes, captured, fated, fate)| Transition::Allocate {
            pool,
            stream,
            bytes,
            captured,
            fated,
            fate,
        },
    );
    let sizes = proptest::collection::vec(bytes(granule_bytes), 1..6);
    let go_back = (0..4usize, 0..4usize, sizes, 1..6usize)
        .prop_map(|(pool, stream, sizes, back)| Transition::GoBack { pool, stream, sizes, back });
    let sizes = proptest::collection::vec(bytes(granule_bytes), 1..6);
    let put_back = (1..4usize, 0..4usize, sizes)
        .prop_map(|(pool, stream, sizes)| Transition::PutBack { pool, stream, sizes });
    let nth = || 0..16usize;
    prop_oneof![
        2 => put_back,
        30 => allocate,
        20 => (nth(), fate()).prop_map(|(nth, fate)| Transition::Free { nth, fate }),
        4 => go_back,
        8 => (nth(), 0..4usize)
            .prop_map(|(nth, stream)| Transition::RecordStream { nth, stream }),
        2 => (nth(), prop_oneof![1..2048u64, 1..64 * MIB, any::<u64>()])
            .prop_map(|(nth, offset)| Transition::FreeBadly { nth, offset }),
        2 => nth().prop_map(|nth| Transition::FreeAgain { nth }),
        8 => (0..8usize, 1..12usize)
            .prop_map(|(queue, items)| Transition::Progress { queue, items }),
        8 => (0..8usize, 0..4usize).prop_map(|(queue, nth)| Transition::Tell { queue, nth }),
        6 => (0..4usize, fate()).prop_map(|(nth, fate)| Transition::Resume { nth, fate }),
        5 => fate().prop_map(|fate| Transition::Trim { fate }),
        5 => (bytes(granule_bytes), fate())
            .prop_map(|(bytes, fate)| Transition::Give { bytes, fate }),
        3 => (0..24u64).prop_map(|granules| Transition::Adopt { granules }),
        2 => fate().prop_map(|fate| Transition::Synchronize { fate }),
        5 => (proptest::option::of(bytes(granule_bytes)), fate())
            .prop_map(|(bytes, fate)| Transition::Compact { bytes, fate }),
        2 => (nth(), fate()).prop_map(|(nth, fate)| Transition::MakeWhole { nth, fate }),
        1 => Just(Transition::ResetPeaks),
        2 => Just(Transition::AddStream),
        2 => (0..4usize, fate()).prop_map(|(nth, fate)| Transition::RetireStream { nth, fate }),
        1 => nth().prop_map(|nth| Transition::UseRetired { nth }),
        1 => kind().prop_map(|kind| Transition::AddPool { kind }),
        1 => Just(Transition::AddUnsplitPool),
        1 => (0..4usize).prop_map(|nth| Transition::ReleasePool { nth }),
        1 => limit(granule_bytes).prop_map(|bytes| Transition::SetLimit { bytes }),
        2 => nth().prop_map(|nth| Transition::Pin { nth }),
        2 => nth().prop_map(|nth| Transition::Unpin { nth }),
    ]
}

/// What generates runs: a start, and operations that any state admits.
pub struct Runs;

impl ReferenceStateMachine for Runs {
    type State = Setup;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Setup> {
        setup().boxed()
    }

    fn transitions(setup: &Setup) -> BoxedStrategy<Transition> {
        transitions(setup.granule_bytes).boxed()
    }

    fn apply(setup: Setup, _: &Transition) -> Setup {
        setup
    }
}

/// The heap beside what runs of transitions do to a reference.
struct HeapAgainst<R>(PhantomData<R>);

impl<R> StateMachineTest for HeapAgainst<R>
where
    R: ReferenceStateMachine<State = Setup, Transition = Transition>,
{
    type SystemUnderTest = World;
    type Reference = R;

    fn init_test(setup: &Setup) -> World {
        World::new(setup)
    }

    fn apply(mut world: World, _: &Setup, transition: Transition) -> World {
        world.apply(transition);
        world
    }

    fn check_invariants(world: &World, _: &Setup) {
        world.verify();
    }

    fn teardown(world: World, _: Setup) {
        world.finish();
    }
}

impl World {
    /// The nth thing of a list, wrapping around.
    fn pick<T: Copy>(things: &[T], nth: usize) -> Option<T> {
        (!things.is_empty()).then(|| things[nth % things.len()])
    }

    fn nth_live(&self, nth: usize) -> Option<u64> {
        let live: Vec<u64> = self.reference.live.keys().copied().collect();
        Self::pick(&live, nth)
    }

    fn apply(&mut self, transition: Transition) {
        match transition {
            Transition::Allocate { pool, stream, bytes, captured, fated, fate } => {
                if let Some(stream) = Self::pick(&self.reference.streams, stream) {
                    let pool = pool % self.pools.len();
                    self.allocate_with(pool, stream, bytes, captured, (fated, fate));
                }
            }
            Transition::Free { nth, fate } => {
                if let Some(address) = self.nth_live(nth) {
                    self.free_with(address, fate);
                }
            }
            Transition::GoBack { pool, stream, sizes, back } => {
                if let Some(stream) = Self::pick(&self.reference.streams, stream) {
                    self.go_back(pool % self.pools.len(), stream, &sizes, back);
                }
            }
            Transition::RecordStream { nth, stream } => {
                let stream = Self::pick(&self.reference.streams, stream);
                if let (Some(address), Some(stream)) = (self.nth_live(nth), stream) {
                    self.record_stream(address, stream);
                }
            }
            Transition::FreeBadly { nth, offset } => {
                let from = self.nth_live(nth).unwrap_or(0);
                let address = from.wrapping_add(offset);
                if !self.reference.live.contains_key(&address) {
                    self.free_badly(address);
                }
            }
            Transition::FreeAgain { nth } => {
                let segments = self.heap.snapshot();
                let blocks = segments.iter().flat_map(|segment| &segment.blocks);
                let starts: Vec<u64> = blocks
                    .map(|block| block.address)
                    .filter(|address| !self.reference.live.contains_key(address))
                    .collect();
                if let Some(address) = Self::pick(&starts, nth) {
                    self.free_badly(address);
                }
            }
            Transition::SetLimit { bytes } => self.heap.set_limit(bytes),
            // Who moves memory has a lock that these take.
            Transition::Pin { .. }
            | Transition::Trim { .. }
            | Transition::Give { .. }
            | Transition::Adopt { .. }
                if self.is_moving() => {}
            Transition::Pin { nth } => {
                if let Some(address) = self.nth_live(nth) {
                    self.pin(address);
                }
            }
            Transition::Unpin { nth } => self.unpin(nth),
            other => self.apply_to_device(other),
        }
    }

    fn apply_to_device(&mut self, transition: Transition) {
        match transition {
            // A stream that is held does nothing.
            Transition::Progress { .. } if self.device.moving.is_held => {}
            Transition::Progress { queue, items } => {
                self.device.clocks.progress(queue % self.device.clocks.len(), items);
            }
            Transition::Tell { queue, nth } => {
                let passed = self.device.clocks.passed(queue % self.device.clocks.len());
                // The latest first: to be told of an earlier one changes nothing.
                let passed: Vec<_> = passed.into_iter().rev().collect();
                if let Some(fence) = Self::pick(&passed, nth) {
                    self.tell(fence);
                }
            }
            Transition::Resume { nth, fate } if self.open_plans() > 0 => {
                self.resume(nth % self.open_plans(), fate);
            }
            Transition::Trim { fate } => {
                self.trim(fate);
            }
            Transition::Give { bytes, fate } => self.give(bytes, fate),
            Transition::Adopt { granules } => self.adopt(granules),
            Transition::Synchronize { fate } => {
                self.synchronize(fate);
            }
            Transition::Compact { bytes, fate } => {
                self.compact(bytes, fate);
            }
            Transition::MakeWhole { nth, fate } => {
                if let Some(address) = self.nth_live(nth) {
                    self.make_whole(address, fate);
                }
            }
            Transition::PutBack { pool, stream, sizes } if pool < self.pools.len() => {
                if let Some(stream) = Self::pick(&self.reference.streams, stream) {
                    self.put_back(pool, stream, &sizes);
                }
            }
            Transition::ResetPeaks => self.reset_peaks(),
            Transition::AddStream if self.reference.streams.len() < 4 => {
                self.add_stream();
            }
            Transition::RetireStream { nth, fate } => {
                if let Some(stream) = Self::pick(&self.reference.streams, nth) {
                    self.retire_stream(stream, fate);
                }
            }
            Transition::UseRetired { nth } => {
                let retired: Vec<_> = self.reference.retired.keys().copied().collect();
                if let Some(stream) = Self::pick(&retired, nth) {
                    self.retire_stream(stream, Fate::Complete);
                    self.allocate_with(0, stream, 512, Captured::None, (0, Fate::Complete));
                    if let Some(address) = self.nth_live(nth) {
                        self.record_stream(address, stream);
                    }
                }
            }
            Transition::AddPool { kind } if self.pools.len() < 4 => {
                self.add_pool_of(kind);
            }
            Transition::AddUnsplitPool if self.pools.len() < 4 => {
                self.add_unsplit_pool();
            }
            Transition::ReleasePool { nth } => self.release_pool(nth % self.pools.len()),
            _ => {}
        }
    }
}

/// A few seconds' worth of runs; `PROPTEST_CASES` asks for more.
fn config(cases: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    let is_chosen = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig { cases: if is_chosen { config.cases } else { cases }, ..config }
}

prop_state_machine! {
    #![proptest_config(config(192))]

    #[test]
    fn heap_agrees_with_the_reference(sequential 1..96 => HeapAgainst<Runs>);
}

prop_state_machine! {
    #![proptest_config(config(192))]

    #[test]
    fn heap_whose_memory_moves_agrees_with_it(sequential 1..160 => HeapAgainst<MovingRuns>);
}

prop_state_machine! {
    #![proptest_config(config(64))]

    #[test]
    fn heap_of_private_pools_agrees_with_it(sequential 1..160 => HeapAgainst<PrivateRuns>);
}
