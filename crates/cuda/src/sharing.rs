//! [`Sharing`]: which devices may reach this one's memory, and the memory pools that must know.
//!
//! Keeps: every pool of the device is open to every peer that was let in, whichever came first.

use std::sync::Arc;

use drystone_driver::{MemoryPoolConfig, ShareableHandle};
use parking_lot::Mutex;

use crate::calls::Cuda;
use crate::failure::Failure;
use crate::primary::Primary;
use crate::properties::Access;

/// Of one `CudaDevice`.
pub(crate) struct Sharing {
    state: Mutex<State>,
}

struct State {
    peers: Vec<u32>,
    /// The device itself, then its peers: what mapped memory is opened to, in one call.
    access: Arc<[Access]>,
    pools: Vec<u64>,
}

/// Why a pool could not be made.
pub(crate) enum PoolRefused {
    /// It was to be shared with other processes, which it cannot.
    NotShareable,
    Driver(Failure),
}

impl From<Failure> for PoolRefused {
    fn from(failure: Failure) -> Self {
        Self::Driver(failure)
    }
}

impl Sharing {
    pub(crate) fn new(location: i32) -> Self {
        let access = Arc::new([Access::of(location)]);
        Self { state: Mutex::new(State { peers: Vec::new(), access, pools: Vec::new() }) }
    }

    /// What mapped memory is to be opened to.
    pub(crate) fn access(&self) -> Arc<[Access]> {
        Arc::clone(&self.state.lock().access)
    }

    /// Opens the device's memory to a peer that can reach it. The lock is held throughout, so that
    /// no pool is missed; none of these calls waits for a device.
    pub(crate) fn let_in(&self, cuda: &Cuda, own: &Primary, peer: &Primary) -> Result<(), Failure> {
        let mut state = self.state.lock();
        if state.peers.contains(&peer.ordinal) {
            return Ok(());
        }
        {
            // It is the peer's context that must be able to reach ours.
            let _current = peer.enter(cuda)?;
            cuda.enable_peer_access(own.context)?;
        }
        let _current = own.enter(cuda)?;
        let access = Access::of(peer.location());
        for &pool in &state.pools {
            cuda.set_memory_pool_access(pool, &[access])?;
        }
        state.peers.push(peer.ordinal);
        state.access = state.access.iter().copied().chain([access]).collect();
        Ok(())
    }

    /// Makes a pool, open to all peers. The device's context is current.
    pub(crate) fn create_pool(
        &self,
        cuda: &Cuda,
        location: i32,
        handle: ShareableHandle,
        config: &MemoryPoolConfig,
    ) -> Result<u64, PoolRefused> {
        let handle = match (config.is_exportable, handle) {
            (true, ShareableHandle::None) => return Err(PoolRefused::NotShareable),
            (true, handle) => handle,
            (false, _) => ShareableHandle::None,
        };
        let mut state = self.state.lock();
        let pool = cuda.create_memory_pool(location, handle)?;
        let prepared =
            cuda.configure_memory_pool(pool, config).and_then(|()| match state.access.get(1..) {
                Some(peers) if !peers.is_empty() => cuda.set_memory_pool_access(pool, peers),
                _ => Ok(()),
            });
        if let Err(failure) = prepared {
            // Nothing was allocated from it yet. If it cannot be destroyed either, it stays, empty.
            let _ = cuda.destroy_memory_pool(pool);
            return Err(failure.into());
        }
        state.pools.push(pool);
        Ok(pool)
    }

    /// Whether the pool was made here and not destroyed yet.
    pub(crate) fn has_pool(&self, pool: u64) -> bool {
        self.state.lock().pools.contains(&pool)
    }

    pub(crate) fn destroy_pool(&self, cuda: &Cuda, pool: u64) -> Result<(), Failure> {
        let mut state = self.state.lock();
        cuda.destroy_memory_pool(pool)?;
        state.pools.retain(|&other| other != pool);
        Ok(())
    }
}
