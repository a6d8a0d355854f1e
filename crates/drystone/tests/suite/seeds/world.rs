//! [`World`]: the device and the program of one seed.
//!
//! Some programs hold much from beginning to end: what they get beside it has large handles.

use std::fmt;
use std::sync::Arc;

use drystone::{CrossStream, Prefer};
use drystone_sim::{Rng, SimConfig, SimDevice, Violation};

use super::Alter;
use crate::program::{Block, Program};
use crate::setup::SOURCES;
use crate::sim::{MIB, watched};

pub struct World {
    pub sim: SimDevice,
    pub program: Program,
    pub rng: Rng,
    /// What the device and the limit allow at one time.
    most_bytes: u64,
    ballast: Vec<Block>,
}

/// Enough for handles of 8 MiB.
const BALLAST_BYTES: u64 = 17 << 30;

/// Why a run is not as it should be.
#[derive(Debug)]
pub struct Failure {
    pub finding: String,
    pub violations: Vec<Violation>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.finding)?;
        self.violations.iter().take(3).try_for_each(|violation| write!(f, "; {violation}"))
    }
}

fn config(rng: &mut Rng, seed: u64, ballast_bytes: u64) -> SimConfig {
    let total_bytes = (64 + rng.below(200)) * MIB / 16 * 16;
    let granules = total_bytes / (2 * MIB);
    let ballast_granules = ballast_bytes / (2 * MIB);
    SimConfig {
        total_bytes: total_bytes + ballast_bytes,
        // It may say that more is free than it gives.
        process_limit_bytes: if rng.chance(20) {
            ballast_bytes + granules * 3 / 4 * 2 * MIB
        } else {
            u64::MAX
        },
        // Room for a few generous reservations, or for any number of them.
        address_space_bytes: if rng.chance(30) {
            (total_bytes + ballast_bytes) * 5
        } else {
            1 << 46
        },
        mapping_limit: ballast_granules
            + if rng.chance(20) { granules * 3 / 4 } else { granules * 8 },
        event_latency_ns: rng.below(2) * rng.below(50_000),
        event_jitter_ns: rng.below(2) * rng.below(50_000),
        clock_jitter_ns: rng.below(2) * rng.below(5_000),
        calls_take_time: rng.chance(30),
        check_kernel_ns: rng.below(300_000),
        seed,
        ..watched()
    }
}

impl World {
    pub fn new(seed: u64, alter: Alter<'_>) -> Self {
        let mut rng = Rng::new(seed);
        let setup = SOURCES[rng.below(4) as usize];
        let ballast_bytes = if setup.is_vmm() && rng.chance(15) { BALLAST_BYTES } else { 0 };
        let config = config(&mut rng, seed, ballast_bytes);
        let total_bytes = config.total_bytes;
        let free_bytes = total_bytes - ballast_bytes;
        let limit_bytes =
            rng.chance(30).then(|| ballast_bytes + free_bytes / 2 + rng.below(free_bytes));
        let mut options = setup.options().with_cross_stream(match rng.below(5) {
            0 => CrossStream::Never,
            1 => CrossStream::Passed,
            _ => CrossStream::Wait,
        });
        options.limit_bytes = limit_bytes;
        options.prefer = *rng
            .pick(&[Prefer::Memory, Prefer::Balanced, Prefer::Speed])
            .unwrap_or(&Prefer::Balanced);
        let mappable_bytes = config.mapping_limit * 2 * MIB;
        let given_bytes = total_bytes.min(config.process_limit_bytes).min(mappable_bytes);
        let most_bytes = given_bytes.min(limit_bytes.unwrap_or(u64::MAX));
        let sim = SimDevice::new(config);
        let driver = alter(Arc::new(sim.clone()));
        let program = Program::with_driver(Arc::new(sim.clone()), driver, options);
        let lane = program.default_lane();
        let ballast = (0..ballast_bytes >> 30).map(|_| program.allocate(lane, 1 << 30)).collect();
        let most_bytes = most_bytes / setup.unit_bytes() * setup.unit_bytes();
        Self { sim, program, rng, most_bytes, ballast }
    }

    pub fn failure(&self, finding: String) -> Failure {
        Failure { finding, violations: self.sim.violations() }
    }

    /// Looks for violations, and thoroughly also for broken invariants.
    pub fn look(&self, is_thorough: bool) -> Result<(), Failure> {
        if self.sim.violation_count() > 0 {
            return Err(self.failure("violation".to_owned()));
        }
        if is_thorough {
            self.program.allocator.check().map_err(|broken| self.failure(broken.to_string()))?;
            // Of what a graph owns, the allocator knows live blocks only.
            let on_device = self.sim.physical_bytes() - self.sim.graph_bytes();
            let held = self.program.reserved();
            if held < on_device {
                let finding = format!("{held} bytes are counted, the device has {on_device}");
                return Err(self.failure(finding));
            }
        }
        Ok(())
    }

    /// Everything was freed: all the memory there may be can be had in one piece (P4), and once
    /// the allocator is gone, so is everything it held (I15).
    pub fn end(mut self) -> Result<(), Failure> {
        self.ballast.drain(..).for_each(|block| self.program.free(block));
        self.look(true)?;
        self.sim.end_graphs();
        let lane = self.program.default_lane();
        match self.program.try_allocate(lane, self.most_bytes) {
            Ok(block) => self.program.free(block),
            Err(error) => return Err(self.failure(format!("at the end: {error}"))),
        }
        self.look(true)?;
        let Self { sim, program, .. } = self;
        drop(program);
        let left = sim.live_objects();
        let violations = sim.violations();
        if left.is_empty() && sim.physical_bytes() == 0 && violations.is_empty() {
            return Ok(());
        }
        let finding = format!("left: {left:?}, {} bytes", sim.physical_bytes());
        Err(Failure { finding, violations })
    }
}
