//! Programs on one stream whose sizes never repeat, repeat in no order, or never fit a hole.

use drystone_sim::Rng;

use super::recorder::{MIB, NoRoom, Recorder};

/// What is freed in a comb, and what is asked for in its place, in KiB. Below, at and above the
/// granule of 2 MiB; each next size is a little larger than its hole.
const COMBS_KIB: [(u64, u64); 9] = [
    (4, 5),
    (512, 600),
    (1034, 1126),
    (1536, 2048),
    (2560, 3072),
    (3584, 4096),
    (7168, 8192),
    (15360, 16384),
    (30720, 32768),
];
/// Blocks of a comb, at most.
const TEETH: u64 = 1000;

/// Allocates and frees at random; sizes are what `pick` says.
fn churn(
    recorder: &mut Recorder,
    rng: &mut Rng,
    pick: impl Fn(&mut Rng) -> u64,
) -> Result<(), NoRoom> {
    let mut live = Vec::new();
    while !recorder.is_over() {
        let bytes = pick(rng);
        // A little more often than not, so that it stays near its limit.
        let wants_more = rng.chance(55) && bytes <= recorder.room();
        if live.is_empty() || wants_more {
            live.push(recorder.allocate(bytes, 0)?);
        } else {
            let at = rng.below(live.len() as u64) as usize;
            recorder.free(live.swap_remove(at));
        }
    }
    Ok(())
}

pub(super) fn random(recorder: &mut Recorder, rng: &mut Rng) -> Result<(), NoRoom> {
    churn(recorder, rng, |rng| MIB + rng.below(399 * MIB))
}

pub(super) fn random_small(recorder: &mut Recorder, rng: &mut Rng) -> Result<(), NoRoom> {
    churn(recorder, rng, |rng| MIB + rng.below(63 * MIB))
}

/// Two sizes in each octave, as caches with rounded sizes ask for.
pub(super) fn few_sizes(recorder: &mut Recorder, rng: &mut Rng) -> Result<(), NoRoom> {
    churn(recorder, rng, |rng| ((2 + rng.below(2)) * (MIB / 2)) << rng.below(10))
}

/// Each iteration is one comb.
pub(super) fn combs(recorder: &mut Recorder, rng: &mut Rng) -> Result<(), NoRoom> {
    while !recorder.is_over() {
        let at = rng.below(COMBS_KIB.len() as u64) as usize;
        let (tooth, next) = (COMBS_KIB[at].0 << 10, COMBS_KIB[at].1 << 10);
        let (mut kept, mut holes) = (Vec::new(), Vec::new());
        for number in 0..(recorder.room() / tooth).clamp(2, TEETH) {
            let block = recorder.allocate(tooth, 0)?;
            if number % 2 == 0 { kept.push(block) } else { holes.push(block) }
        }
        let freed_bytes = holes.len() as u64 * tooth;
        for hole in holes {
            recorder.free(hole);
        }
        for _ in 0..freed_bytes / next {
            kept.push(recorder.allocate(next, 0)?);
        }
        for block in kept {
            recorder.free(block);
        }
        recorder.iteration();
    }
    Ok(())
}
