//! [`Actor`]: one thread of a program that does anything, in any order, as a seed says.

use std::mem;
use std::sync::{Mutex, RwLock};

use drystone::driver::{CaptureMode, Stream};
use drystone::{AllocateError, OutOfMemory, PoolId};
use drystone_sim::Rng;

use crate::program::{Block, Lane, Program};

/// What threads have in common.
#[derive(Default)]
pub struct Shared {
    /// Where they leave blocks for others to free.
    pub market: Mutex<Vec<Block>>,
    /// Written while a capture begins: a program begins none while another thread may be about to
    /// wait for the device, which no capture survives. Captures go on beside whatever follows.
    calm: RwLock<()>,
}

pub struct Actor<'a> {
    program: &'a Program,
    rng: Rng,
    lanes: Vec<Lane>,
    pools: Vec<PoolId>,
    live: Vec<Block>,
    captured: Option<Lane>,
    /// `None` when this is the only thread.
    shared: Option<&'a Shared>,
    digest: u64,
}

impl<'a> Actor<'a> {
    pub fn new(program: &'a Program, mut rng: Rng) -> Self {
        let lanes = 1 + rng.below(4);
        let mut lanes: Vec<Lane> = (0..lanes).map(|_| program.lane()).collect();
        lanes.push(program.default_lane());
        Self {
            program,
            rng,
            lanes,
            pools: vec![PoolId::DEFAULT],
            live: Vec::new(),
            captured: None,
            shared: None,
            digest: 0,
        }
    }

    /// Makes this one of several threads.
    pub fn beside(self, shared: &'a Shared) -> Self {
        Self { shared: Some(shared), ..self }
    }

    /// Changes with every answer of the allocator.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    pub fn step(&mut self) -> Result<(), String> {
        let choice = self.rng.below(100);
        let calm = match choice {
            97.. => None,
            _ => self.shared.map(|shared| shared.calm.read().unwrap()),
        };
        let done = match choice {
            0..45 => self.allocate(),
            45..75 => self.free_one(),
            75..85 => self.use_one(),
            85..91 => self.let_time_pass(),
            91..93 => self.trim(),
            93..95 => self.replace_lane(),
            95..97 => self.replace_pool(),
            _ => self.begin_or_end_capture(),
        };
        drop(calm);
        done
    }

    /// Ends what was begun, and frees everything.
    pub fn finish(&mut self) -> Result<(), String> {
        if self.captured.is_some() {
            self.begin_or_end_capture()?;
        }
        let _calm = self.shared.map(|shared| shared.calm.read().unwrap());
        while !self.live.is_empty() {
            self.free_one()?;
        }
        for pool in mem::take(&mut self.pools).into_iter().filter(|&pool| pool != PoolId::DEFAULT) {
            self.program.allocator.release_pool(pool).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn any_lane(&mut self) -> Lane {
        self.lanes[self.rng.below(self.lanes.len() as u64) as usize]
    }

    fn take_any_block(&mut self) -> Option<Block> {
        let at = self.rng.below(self.live.len() as u64) as usize;
        (at < self.live.len()).then(|| self.live.swap_remove(at))
    }

    fn size(&mut self) -> u64 {
        let total_bytes = self.program.device.driver().info().total_bytes;
        let most = match self.rng.below(10) {
            0..4 => 1 << self.rng.below(21),
            4..9 => total_bytes / 16,
            _ => total_bytes / 3,
        };
        1 + self.rng.below(most)
    }

    fn allocate(&mut self) -> Result<(), String> {
        let (lane, bytes) = (self.any_lane(), self.size());
        let pool = *self.rng.pick(&self.pools).unwrap_or(&PoolId::DEFAULT);
        match self.program.try_allocate_in(pool, lane, bytes) {
            Ok(block) => {
                self.note(block.address);
                self.live.push(block);
                Ok(())
            }
            Err(AllocateError::OutOfMemory(error)) => {
                self.note(error.reserved_bytes);
                if !error.is_capturing && self.shared.is_none() && self.pools.len() == 1 {
                    self.nothing_unused_would_do(&error)?;
                }
                // A program under pressure gives up about half of what it has.
                for _ in 0..self.live.len() / 2 {
                    self.free_one()?;
                }
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// After a refusal no more is held than what is in use, and what it has in common granules or
    /// plain segments with; unless all that is unused would not have done.
    fn nothing_unused_would_do(&self, error: &OutOfMemory) -> Result<(), String> {
        let all = self.program.allocator.stats().all;
        let by_limit = error.limit_bytes.saturating_sub(error.reserved_bytes);
        let left = error.device_free_bytes.unwrap_or(by_limit).min(by_limit);
        if left + error.reserved_bytes - error.allocated_bytes < error.requested_bytes {
            return Ok(());
        }
        let (active, reserved) = (all.active_bytes.current, all.reserved_bytes.current);
        let shared = all.active_blocks.current * self.program.slack_bytes;
        if reserved <= active + shared {
            return Ok(());
        }
        Err(format!(
            "{reserved} bytes are held for {active} in {} blocks",
            all.active_blocks.current
        ))
    }

    fn free_one(&mut self) -> Result<(), String> {
        let Some(mut block) = self.take_any_block() else { return Ok(()) };
        if let Some(shared) = self.shared
            && self.rng.chance(20)
        {
            let mut market = shared.market.lock().unwrap();
            market.push(block);
            block = market.swap_remove(0);
        }
        self.program.try_free(&block).map_err(|error| error.to_string())
    }

    fn use_one(&mut self) -> Result<(), String> {
        let lane = self.any_lane();
        let Some(block) = self.take_any_block() else { return Ok(()) };
        self.program.use_on(&block, lane);
        self.live.push(block);
        Ok(())
    }

    fn let_time_pass(&mut self) -> Result<(), String> {
        self.program.device.pass(self.rng.below(300));
        Ok(())
    }

    fn trim(&mut self) -> Result<(), String> {
        let allocator = &self.program.allocator;
        let is_waiting = self.rng.chance(30);
        // With several threads, any of them may be.
        let may_be_capturing = self.captured.is_some() || self.shared.is_some();
        let result = if is_waiting { allocator.trim() } else { allocator.trim_passed() };
        match result {
            Ok(bytes) => {
                self.note(bytes);
                Ok(())
            }
            Err(error) if may_be_capturing && error.given_back_bytes == 0 => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// A stream goes, announced or not, and another comes, often with its handle. Beside other
    /// threads always announced: they may ask about it before that handle comes again.
    fn replace_lane(&mut self) -> Result<(), String> {
        let at = self.rng.below(self.lanes.len() as u64) as usize;
        let lane = self.lanes[at];
        if lane.stream == Stream::DEFAULT || self.captured.is_some_and(|one| one.id == lane.id) {
            return Ok(());
        }
        if self.rng.chance(80) || self.shared.is_some() {
            self.program.allocator.retire_stream(lane.id).map_err(|error| error.to_string())?;
        }
        self.program.device.destroy_stream(lane.stream);
        self.lanes[at] = self.program.lane();
        Ok(())
    }

    fn replace_pool(&mut self) -> Result<(), String> {
        if self.pools.len() < 3 {
            self.pools.push(self.program.allocator.add_pool());
            return Ok(());
        }
        let pool = self.pools.pop().unwrap_or(PoolId::DEFAULT);
        self.program.allocator.release_pool(pool).map_err(|error| error.to_string())
    }

    fn begin_or_end_capture(&mut self) -> Result<(), String> {
        if let Some(lane) = self.captured.take() {
            let is_intact = self.program.device.end_capture(lane.stream);
            return if is_intact { Ok(()) } else { Err("a capture was broken".to_owned()) };
        }
        let lane = self.any_lane();
        let _calm = self.shared.map(|shared| shared.calm.write().unwrap());
        if lane.stream != Stream::DEFAULT {
            let modes = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
            let mode = modes[self.rng.below(3) as usize];
            self.program.device.begin_capture(lane.stream, mode);
            self.captured = Some(lane);
        }
        Ok(())
    }

    fn note(&mut self, answer: u64) {
        self.digest = (self.digest.rotate_left(5) ^ answer).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
