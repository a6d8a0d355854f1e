//! What the benchmarks share: an allocator in the middle of a program's life.
//!
//! Keeps: the blocks around the timed one are live, so that a free finds no neighbour to join but
//! the rest it was cut from, and a malloc cuts it again. That is the hit path at its longest.
#![forbid(unsafe_code)]

pub mod held;

use std::sync::Arc;

use drystone::{AllocateError, Allocator, Options, PoolId, StreamId};
use drystone_driver::Stream;
use drystone_sim::{SimConfig, SimDevice};

/// Block sizes to time, in bytes: both classes, exact bins and wide ones.
pub const SIZES: [u64; 4] = [1 << 10, 100_000, 5 << 20, 100 << 20];

/// An allocator that holds a few hundred live blocks.
#[derive(Debug)]
pub struct Warm {
    /// The allocator.
    pub allocator: Allocator,
    /// Its stream.
    pub stream: StreamId,
    /// The device below it.
    pub device: SimDevice,
}

impl Warm {
    /// Makes one, with every size of [`SIZES`] ready to be served without a driver call.
    ///
    /// # Errors
    /// None on the device it makes; the types say otherwise.
    pub fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let device = SimDevice::new(SimConfig::default());
        let allocator = Allocator::new(Arc::new(device.clone()), &Options::default())?;
        let stream = allocator.add_stream(Stream::DEFAULT)?;
        for number in 1..=200 {
            let _live = allocator.allocate(stream, 3000 * number)?.into_address();
        }
        for bytes in SIZES {
            drop(allocator.allocate(stream, bytes)?);
        }
        Ok(Self { allocator, stream, device })
    }

    /// One malloc and the free of it.
    ///
    /// # Errors
    /// As the allocator.
    #[inline]
    pub fn pair(&self, bytes: u64) -> Result<(), AllocateError> {
        let grant = self.allocator.allocate_raw(PoolId::DEFAULT, self.stream, bytes)?;
        let freed = self.allocator.free(grant.address);
        debug_assert_eq!(freed, Ok(()));
        Ok(())
    }
}
