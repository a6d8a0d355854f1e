//! Runs of one kind of operation more than of others.

use drystone_core::{Captured, Prefer};
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

use crate::transition::{Transition, fate, transitions};
use crate::world::{Fate, Setup};

const MIB: u64 = 1 << 20;

/// Runs in which memory moves often: large handles, of which parts are freed.
pub struct MovingRuns;

impl ReferenceStateMachine for MovingRuns {
    type State = Setup;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Setup> {
        let prefer = prop_oneof![Just(Prefer::Memory), Just(Prefer::Balanced)];
        let capacity_bytes = prop_oneof![Just(48 * MIB), Just(128 * MIB), Just(1024 * MIB)];
        let setup =
            (prefer, capacity_bytes, 1..=3usize).prop_map(|(prefer, bytes, streams)| Setup {
                left_per_handle: 1,
                prefer,
                device_bytes: bytes,
                capacity_bytes: bytes,
                streams,
                ..Setup::default()
            });
        setup.boxed()
    }

    fn transitions(setup: &Setup) -> BoxedStrategy<Transition> {
        let granule_bytes = setup.granule_bytes;
        let bytes = (1..14u64).prop_map(move |halves| halves * granule_bytes / 2);
        let allocate = (0..3usize, bytes.clone(), fate()).prop_map(|(stream, bytes, fate)| {
            let captured = Captured::None;
            Transition::Allocate { pool: 0, stream, bytes, captured, fated: 3, fate }
        });
        let nth = || 0..64usize;
        let steps = prop_oneof![
            40 => allocate,
            30 => nth().prop_map(|nth| Transition::Free { nth, fate: Fate::Complete }),
            15 => (proptest::option::of(bytes), fate())
                .prop_map(|(bytes, fate)| Transition::Compact { bytes, fate }),
            10 => (0..4usize, fate()).prop_map(|(nth, fate)| Transition::Resume { nth, fate }),
            10 => (nth(), fate()).prop_map(|(nth, fate)| Transition::MakeWhole { nth, fate }),
            20 => transitions(granule_bytes),
        ];
        steps.boxed()
    }

    fn apply(setup: Setup, _: &Transition) -> Setup {
        setup
    }
}

/// Runs of graphs: private pools whose blocks differ in size, and are put back.
pub struct PrivateRuns;

impl ReferenceStateMachine for PrivateRuns {
    type State = Setup;
    type Transition = Transition;

    fn init_state() -> BoxedStrategy<Setup> {
        let prefer = prop_oneof![Just(Prefer::Memory), Just(Prefer::Balanced)];
        let setup = (prefer, 1..=3usize, 1..3u64).prop_map(|(prefer, streams, left_per_handle)| {
            Setup { left_per_handle, prefer, streams, ..Setup::default() }
        });
        setup.boxed()
    }

    fn transitions(setup: &Setup) -> BoxedStrategy<Transition> {
        let granule_bytes = setup.granule_bytes;
        let bytes = || (1..24u64).prop_map(move |quarters| quarters * granule_bytes / 4);
        let captured = prop_oneof![3 => Just(Captured::Own), 1 => Just(Captured::None)];
        let allocate = (1..3usize, 0..3usize, bytes(), captured, fate()).prop_map(
            |(pool, stream, bytes, captured, fate)| Transition::Allocate {
                pool,
                stream,
                bytes,
                captured,
                fated: 3,
                fate,
            },
        );
        let sizes = proptest::collection::vec(bytes(), 1..6);
        let put_back = (1..3usize, 0..3usize, sizes)
            .prop_map(|(pool, stream, sizes)| Transition::PutBack { pool, stream, sizes });
        let steps = prop_oneof![
            5 => Just(Transition::AddPool { kind: drystone_core::SegmentKind::Mapped }),
            40 => allocate,
            30 => (0..64usize).prop_map(|nth| Transition::Free { nth, fate: Fate::Complete }),
            10 => put_back,
            20 => transitions(granule_bytes),
        ];
        steps.boxed()
    }

    fn apply(setup: Setup, _: &Transition) -> Setup {
        setup
    }
}
