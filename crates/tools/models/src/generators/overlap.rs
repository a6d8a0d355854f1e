//! Programs on several streams whose work is independent unless a block is used on both: whoever
//! makes one wait for another slows them down.
//!
//! Each holds weights for as long as it runs, as real programs do, so that a quarter of a device
//! free is enough for all streams at once.

use std::collections::VecDeque;

use drystone_sim::Rng;

use super::recorder::{Block, MIB, NoRoom, Recorder};

/// What each program holds throughout, in parts.
const WEIGHTS: (u64, u64) = (16, 128 * MIB);
/// Blocks that a stream's turn takes, at most.
const TURN: u64 = 6;
/// Streams beside the default one that there are in all. Expandable segments reserve addresses for
/// more than the whole device twice for each: with more streams a large device runs out of them.
const STREAMS: u64 = 40;

fn load_weights(recorder: &mut Recorder) -> Result<(), NoRoom> {
    (0..WEIGHTS.0).try_for_each(|_| recorder.allocate(WEIGHTS.1, 0).map(drop))
}

fn free_all(recorder: &mut Recorder, blocks: impl IntoIterator<Item = Block>) {
    for block in blocks {
        recorder.free(block);
    }
}

/// A stream's turn: some blocks at once, freed in the order they were made.
fn turn(recorder: &mut Recorder, rng: &mut Rng, stream: u16) -> Result<(), NoRoom> {
    let mut blocks = Vec::new();
    for _ in 0..=rng.below(TURN) {
        let bytes = (10 + rng.below(130)) * MIB + rng.below(MIB);
        blocks.push(recorder.allocate(bytes, stream)?);
    }
    free_all(recorder, blocks);
    Ok(())
}

pub(super) fn two_streams(recorder: &mut Recorder, rng: &mut Rng) -> Result<(), NoRoom> {
    load_weights(recorder)?;
    while !recorder.is_over() {
        turn(recorder, rng, 0)?;
        turn(recorder, rng, 1)?;
        recorder.iteration();
    }
    Ok(())
}

pub(super) fn two_streams_periodic(recorder: &mut Recorder, rng: &mut Rng) -> Result<(), NoRoom> {
    load_weights(recorder)?;
    let seed = rng.next_u64();
    while !recorder.is_over() {
        let mut same = Rng::new(seed);
        turn(recorder, &mut same, 0)?;
        turn(recorder, &mut same, 1)?;
        recorder.iteration();
    }
    Ok(())
}

/// A data loader's stream beside a step of ten layers, all sizes fixed.
pub(super) fn prefetch(recorder: &mut Recorder, _: &mut Rng) -> Result<(), NoRoom> {
    load_weights(recorder)?;
    while !recorder.is_over() {
        recorder.use_briefly(200 * MIB, 1)?;
        for _ in 0..10 {
            recorder.use_briefly(150 * MIB, 0)?;
        }
        recorder.iteration();
    }
    Ok(())
}

/// Rank of a pipeline: what stream 1 receives stream 0 works on, what stream 0 makes stream 1
/// sends. Blocks are freed two steps later.
pub(super) fn crossed(recorder: &mut Recorder, rng: &mut Rng) -> Result<(), NoRoom> {
    load_weights(recorder)?;
    let mut under_way = VecDeque::new();
    while !recorder.is_over() {
        let bytes = (8 + rng.below(120)) * MIB;
        let received = recorder.allocate(bytes, 1)?;
        recorder.record_stream(&received, 0);
        recorder.use_briefly(bytes / 2, 0)?;
        let sent = recorder.allocate(bytes, 0)?;
        recorder.record_stream(&sent, 1);
        under_way.push_back([received, sent]);
        if under_way.len() > 2 {
            free_all(recorder, under_way.pop_front().into_iter().flatten());
        }
        recorder.iteration();
    }
    Ok(())
}

/// Each request has a stream of its own, and four are under way at a time.
pub(super) fn streams(recorder: &mut Recorder, rng: &mut Rng) -> Result<(), NoRoom> {
    load_weights(recorder)?;
    let mut under_way: VecDeque<[Block; 3]> = VecDeque::new();
    for number in 0.. {
        if recorder.is_over() {
            break;
        }
        // Cannot truncate: there are fewer.
        let stream = 1 + (number % STREAMS) as u16;
        let mut ask = || recorder.allocate((4 + rng.below(60)) * MIB, stream);
        let blocks = [ask()?, ask()?, ask()?];
        recorder.record_stream(&blocks[0], 0);
        recorder.use_briefly(32 * MIB, 0)?;
        under_way.push_back(blocks);
        if under_way.len() > 4 {
            free_all(recorder, under_way.pop_front().into_iter().flatten());
        }
        recorder.iteration();
    }
    Ok(())
}
