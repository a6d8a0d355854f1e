//! [`Device`]: one simulated device with what the driver API keeps beside it: flags of streams and
//! events, pools, memory handles, graphs, modules.
//!
//! Locks: `tables` is taken before the simulated device's own lock, never the other way round.

use crate::abi::Raw;
use crate::backing::Backing;
use crate::config::Config;
use crate::handle::{Handle, Kind};
use crate::status::{INVALID_HANDLE, Outcome};
use crate::tables::Tables;
use crate::violation;
use drystone_driver::{ErrorCode, Event, MemoryPool, Stream};
use drystone_sim::{GRANULARITY_BYTES, Host, SimConfig, SimDevice};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Addresses of device memory begin here, above those that mimalloc asks the system for (from 2 to
/// 30 TiB), and end below those of programs and libraries (from 85 TiB).
const FIRST_ADDRESS: u64 = 32 << 40;
const ADDRESSES: u64 = 48 << 40;

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: usize,
    /// Its number on the machine.
    pub(crate) place: usize,
    /// How many devices had this ordinal before.
    pub(crate) generation: u16,
    pub(crate) config: Config,
    pub(crate) sim: SimDevice,
    pub(crate) tables: Mutex<Tables>,
    /// Captures going on; most calls need to know only that there is none.
    pub(crate) captures: AtomicU32,
    pub(crate) kernels: AtomicU64,
    pub(crate) peers: AtomicU64,
    pub(crate) backing: Option<Backing>,
}

/// Addresses of one device among several.
pub(crate) const fn span(devices: usize) -> u64 {
    let share = ADDRESSES / devices as u64;
    share - share % GRANULARITY_BYTES
}

/// The ordinal of the device whose addresses these are.
pub(crate) fn ordinal_of_address(address: u64, devices: usize) -> Option<usize> {
    let place = address.checked_sub(FIRST_ADDRESS)?.checked_div(span(devices.max(1)))?;
    (place < devices as u64).then_some(place as usize)
}

impl Device {
    /// One of the visible devices, whose places are given by ordinal.
    pub(crate) fn new(
        ordinal: usize,
        places: &[usize],
        generation: u16,
        config: &Config,
        beside: Option<&SimDevice>,
    ) -> Self {
        let place = places[ordinal];
        let sim = SimConfig {
            // Other processes know a device by its place.
            ordinal: place as u32,
            first_address: FIRST_ADDRESS + ordinal as u64 * span(places.len()),
            address_space_bytes: config.sim.address_space_bytes.min(span(places.len())),
            peers: places.iter().filter(|&&peer| peer != place).map(|&peer| peer as u32).collect(),
            on_violation: Some(violation::hook),
            // Programs read what the host has where they are told to look for it.
            host: config.sim.host.clone().map(|host| Host {
                root: std::env::var_os("DRYSTONE_HOST_ROOT").map(Into::into),
                ..host
            }),
            ..config.sim.clone()
        };
        let backing = config.backing.then(|| Backing::new(&sim));
        let sim = match beside {
            Some(other) => SimDevice::beside(sim, other),
            None => SimDevice::new(sim),
        };
        Self {
            ordinal,
            place,
            generation,
            config: config.clone(),
            tables: Mutex::new(Tables::new(&sim)),
            sim,
            captures: AtomicU32::new(0),
            kernels: AtomicU64::new(0),
            peers: AtomicU64::new(0),
            backing,
        }
    }

    /// Whether this device may use memory of one: of its own, and where both can have peers, of
    /// another.
    pub(crate) const fn reaches(&self, owner: &Self) -> bool {
        let are_peers = self.config.sim.has_peers && owner.config.sim.has_peers;
        self.ordinal == owner.ordinal || are_peers
    }

    /// A handle of this device.
    pub(crate) const fn handle(&self, kind: Kind, value: u64) -> Raw {
        Handle { kind, ordinal: self.ordinal, generation: self.generation, value }.encode()
    }

    /// Whether a stream, an event or a memory pool still is there; the others are looked at where
    /// they are used.
    pub(crate) fn is_alive(&self, kind: Kind, value: u64) -> bool {
        match kind {
            Kind::Stream => self.sim.busy_until_ns(Stream(value)).is_ok(),
            Kind::Event => !matches!(self.sim.mark(Event(value)), Err(ErrorCode::InvalidHandle)),
            Kind::Pool => self.sim.memory_pool_config(MemoryPool(value)).is_ok(),
            _ => true,
        }
    }

    /// The value behind a handle of this device.
    pub(crate) fn value(&self, raw: Raw, kind: Kind) -> Outcome<u64> {
        let handle = Handle::decode(raw, kind).ok_or(INVALID_HANDLE)?;
        let is_own = handle.ordinal == self.ordinal && handle.is_of(self.generation);
        if is_own { Ok(handle.value) } else { Err(INVALID_HANDLE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_the_process_may_lie_where_mimalloc_asks_for_it() {
        for tebibytes in [2_u64, 29] {
            let at = (tebibytes << 40) as *mut libc::c_void;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: a page of its own, which replaces none.
            let page = unsafe { libc::mmap(at, 4096, libc::PROT_READ, flags, -1, 0) };
            assert_eq!(page, at);
        }
        let config = Config { backing: true, ..Config::default() };
        for ordinal in 0..2 {
            assert!(Device::new(ordinal, &[0, 1], 0, &config, None).backing.is_some());
        }
    }
}
