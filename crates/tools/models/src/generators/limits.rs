//! Programs about the end of memory, and about taking much of it at once.
//!
//! They come up to their extent's limit: replay the first two on a smaller device, so that it
//! refuses something.

use drystone_sim::Rng;

use super::recorder::{MIB, NoRoom, Recorder};

/// Activations of a batch of one.
const SAMPLE_BYTES: u64 = 96 * MIB;

/// Weights of an eighth; batches twice as large until the limit, then by a quarter smaller until a
/// third of it is enough, which is what the program then runs with.
pub(super) fn batch_finder(recorder: &mut Recorder, _: &mut Rng) -> Result<(), NoRoom> {
    let weights = recorder.room() / 8;
    recorder.allocate(weights, 0)?;
    let (room, mut bytes) = (recorder.room(), SAMPLE_BYTES);
    loop {
        recorder.use_briefly(bytes, 0)?;
        recorder.iteration();
        if bytes > room / 2 {
            break;
        }
        bytes *= 2;
    }
    while bytes > room / 3 {
        bytes -= bytes / 4;
        recorder.empty_cache();
        recorder.use_briefly(bytes, 0)?;
        recorder.iteration();
    }
    while !recorder.is_over() {
        recorder.use_briefly(bytes, 0)?;
        recorder.iteration();
    }
    Ok(())
}

/// In parts of 81: 40 live and 41 asked for; 10 live and 71 asked for; 30 live, 40 cached and 51
/// asked for. On a device of 80 parts each last one is refused.
pub(super) fn out_of_memory(recorder: &mut Recorder, _: &mut Rng) -> Result<(), NoRoom> {
    let whole = recorder.room();
    let parts = |count: u64| (whole / 81).max(1) * count;
    while !recorder.is_over() {
        for (held, cached) in [(40, 0), (10, 0), (30, 40)] {
            let block = recorder.allocate(parts(held), 0)?;
            if cached > 0 {
                recorder.use_briefly(parts(cached), 0)?;
            }
            recorder.use_briefly(parts(81 - held), 0)?;
            recorder.free(block);
            recorder.empty_cache();
            recorder.iteration();
        }
    }
    Ok(())
}

/// A cache of keys and values, say, and nothing before it.
pub(super) fn first_growth(recorder: &mut Recorder, _: &mut Rng) -> Result<(), NoRoom> {
    let bytes = recorder.room();
    while !recorder.is_over() {
        recorder.use_briefly(bytes, 0)?;
        recorder.iteration();
    }
    Ok(())
}
