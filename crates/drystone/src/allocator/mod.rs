//! [`Allocator`]: the public type, one for each device.
//!
//! Every method of it is in this folder: `alloc` (blocks and streams), `pools` (and how much memory
//! they may have), `own_order` (what the program orders itself), `mapping` (pins and changes),
//! `moving` (other memory behind the same addresses), `share` (other processes), `inspect` (what is
//! held). None does more than hand on: what the handles of an allocator share is [`Engine`], where
//! the lock order is written down.

mod alloc;
mod inspect;
mod mapping;
mod moving;
mod own_order;
mod pools;
mod share;
#[cfg(test)]
mod tests;

pub use mapping::PinError;
pub use share::Imported;

use std::sync::Arc;

use drystone_core::{AsyncPools, Config, Heap, SegmentKind};
use drystone_driver::Driver;

use crate::backend::BackendState;
use crate::build_error::{
    BuildError, check_memory_pools, check_options, check_sharing, check_virtual_memory,
};
use crate::engine::Engine;
use crate::executor::Executor;
use crate::executor::handles::Handles;
use crate::options::{Backend, Options};
use crate::state_lock::StateLock;

/// A caching allocator for one device. Cloning gives another handle to the same allocator.
///
/// # Threads and blocking
/// Every method may be called from any thread, by several at once. A request that its own free list
/// serves ([`allocate`](Self::allocate) and the like), a free of a block that no other stream used,
/// and everything that only asks take one short lock and make no driver call; with backend `async`
/// every request and every free makes one, and statistics ask the driver. A request that misses may
/// call the driver, wait for the device and run the program's callbacks; such requests and
/// [`trim`](Self::trim) take turns. No free waits for the device. A recording costs one lock more,
/// and a tag one at each free. What else calls the driver says so.
///
/// # Events
/// With the feature `tracing` of the target `drystone`: a `driver call` (trace), one that failed
/// (debug), how a miss goes about `making room` (debug), a request that was `refused` (warn). A hit
/// gives none.
#[derive(Clone)]
pub struct Allocator {
    pub(crate) engine: Arc<Engine>,
}

impl Allocator {
    /// An allocator that takes its memory from this device.
    ///
    /// # Errors
    /// The options ask for what the device has not.
    pub fn new(driver: Arc<dyn Driver>, options: &Options) -> Result<Self, BuildError> {
        check_options(options)?;
        let info = driver.info();
        let limit_bytes = options.limit_on(info.total_bytes);
        let backend = options.backend.unwrap_or(match info.has_virtual_memory {
            true => Backend::Vmm,
            false => Backend::Malloc,
        });
        let heap = |kind| {
            let config = Config::new(kind, options.granule_bytes, info.total_bytes)
                .with_limit_bytes(limit_bytes)
                .with_cross_stream(options.cross_stream)
                .with_prefer(options.prefer)
                .with_host_memory(info.is_integrated);
            let config = if options.remaps { config } else { config.without_remaps() };
            (BackendState::Heap(StateLock::new(Heap::new(config))), Handles::default())
        };
        let (state, handles) = match backend {
            Backend::Vmm => {
                check_virtual_memory(&info, options.granule_bytes)?;
                check_sharing(&info, options)?;
                heap(SegmentKind::Mapped)
            }
            Backend::Malloc => heap(SegmentKind::Plain),
            Backend::Async => {
                check_memory_pools(&info)?;
                check_sharing(&info, options)?;
                let pools = AsyncPools::new(limit_bytes);
                let handles = Handles::with_config(options.memory_pool_config());
                (BackendState::AsyncPools(StateLock::new(pools)), handles)
            }
        };
        let executor = Executor::new(driver, handles, options.floor_on(&info));
        Ok(Self { engine: Arc::new(Engine::new(state, executor)) })
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
