//! Streams of contexts that the program made: they may use memory, and get none. No wait for the
//! device is one for them, and a context that is gone may not be asked.

use std::sync::Arc;

use drystone::AllocateError;
use drystone::driver::{CaptureMode, ErrorCode, Stream};
use drystone_sim::{Context, SimDevice};

use crate::program::{Lane, Program};
use crate::setup::{ASYNC, MALLOC, Setup, VMM_2MIB};
use crate::sim::{MIB, watched};

/// A program whose allocator is told of a stream of another context.
struct Outside {
    sim: SimDevice,
    program: Program,
    own: Lane,
}

impl Outside {
    fn new(setup: &Setup) -> Self {
        let sim = SimDevice::new(watched());
        let program = Program::new(Arc::new(sim.clone()), setup.options());
        let own = program.lane();
        Self { sim, program, own }
    }

    fn stream(&self) -> Stream {
        self.sim.create_stream_of(Context(1))
    }

    #[track_caller]
    fn is_refused(&self, lane: Lane, bytes: u64) {
        match self.program.try_allocate(lane, bytes) {
            Err(AllocateError::Driver { error, .. }) => {
                assert_eq!(error.code, ErrorCode::OtherContext);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// What it frees would serve others once the device was idle, which says nothing of it.
#[test]
fn b11_a_stream_of_another_context_gets_no_memory() {
    for setup in [VMM_2MIB, MALLOC, ASYNC] {
        let outside = Outside::new(&setup);
        let lasting = outside.program.lane_of(outside.stream());
        let stream = outside.stream();
        let passing =
            Lane { stream, id: outside.program.allocator.add_passing_stream(stream).unwrap() };
        for bytes in [700, 20 * MIB] {
            outside.is_refused(lasting, bytes);
            outside.is_refused(passing, bytes);
        }
        let block = outside.program.allocate(outside.own, 20 * MIB);
        outside.program.free(block);
        outside.is_refused(passing, 20 * MIB);
        outside.program.end();
    }
}

/// Free memory of a stream that ended goes to the next one that comes, as hits.
#[test]
fn b11_what_a_stream_of_another_context_inherits_serves_others() {
    let outside = Outside::new(&VMM_2MIB);
    let gone = outside.program.lane();
    let block = outside.program.allocate(gone, 20 * MIB);
    outside.program.free(block);
    outside.program.allocator.retire_stream(gone.id).unwrap();
    outside.sim.advance_by(1_000_000);
    // Finds out that the last fence has passed.
    let other = outside.program.allocate(outside.own, 700);
    let heir = outside.program.lane_of(outside.stream());
    assert_eq!(heir.id.index(), gone.id.index(), "nothing is inherited");
    for _ in 0..3 {
        outside.is_refused(heir, 20 * MIB);
    }
    outside.program.free(other);
    outside.program.allocator.trim().unwrap();
    assert_eq!(outside.program.reserved(), 0);
    outside.is_refused(heir, 20 * MIB);
    outside.program.end();
}

#[test]
fn b11_what_a_stream_of_another_context_uses_is_waited_for() {
    for setup in [VMM_2MIB, MALLOC, ASYNC] {
        let outside = Outside::new(&setup);
        let user = outside.program.lane_of(outside.stream());
        for round in 1..4 {
            let block = outside.program.allocate(outside.own, 20 * MIB);
            outside.program.use_on(&block, user);
            outside.sim.launch(user.stream, 1_000_000).unwrap();
            outside.program.free(block);
            assert!(outside.sim.now_ns() >= round * 1_000_000);
            let next = outside.program.allocate(outside.own, 20 * MIB);
            outside.program.free(next);
            outside.program.allocator.trim().unwrap();
        }
        outside.program.end();
    }
}

/// Whose a stream is may be unknown as long as it is captured.
#[test]
fn a_stream_that_is_first_met_in_a_capture_is_served() {
    let outside = Outside::new(&VMM_2MIB);
    let stream = outside.sim.create_stream();
    outside.sim.begin_capture(stream, CaptureMode::Global).unwrap();
    let lane = outside.program.lane_of(stream);
    let blocks = [20, 30].map(|size| outside.program.allocate(lane, size * MIB));
    outside.sim.end_capture(stream).unwrap();
    blocks.into_iter().for_each(|block| outside.program.free(block));
    for _ in 0..2 {
        let hit = outside.program.allocate(lane, 20 * MIB);
        outside.program.free(hit);
    }
    outside.program.end();
}
