//! [`SimConfig`]: what the simulated device is like. Plain data; every combination is valid.

use crate::cost::CostTable;
use crate::harsh::Harsh;
use crate::legality::Legality;
use crate::violation::Violation;
use std::path::PathBuf;

/// What a device says of memory that network cards reach directly, and does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetworkMemory {
    /// It has none, and says so.
    #[default]
    Absent,
    /// It has it.
    Works,
    /// It says that it has it, creates and maps it, and refuses access.
    Broken,
}

/// Declares a structure of settings, each with its default beside it.
#[macro_export]
macro_rules! settings {
    ($(#[$about:meta])* $shown:vis struct $name:ident;
     $($(#[$doc:meta])* $is:vis $field:ident: $type:ty = $default:expr,)*) => {
        $(#[$about])*
        $shown struct $name { $($(#[$doc])* $is $field: $type,)* }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }
    };
}

settings! {
    /// Properties of one simulated device. Build it with struct update syntax over
    /// [`SimConfig::default`]: an 80 GiB device that answers at once and checks nothing.
    #[derive(Clone, Debug)]
    pub struct SimConfig;

    /// The device's ordinal. Devices of one process need different ones: stream identities
    /// contain it, while handle values are the same on every device on purpose.
    pub ordinal: u32 = 0,
    /// Physical memory, in bytes.
    pub total_bytes: u64 = 80 << 30,
    /// Whether more is handed out than there is. Nothing is ever out of memory then, and a device
    /// beyond its end says that none is free: for programs whose needs are to be found out.
    pub is_overcommitted: bool = false,
    /// What this process may hold of it, in bytes: what CUDA's Multi-Process Service calls the
    /// pinned device memory limit. The device says as much as before that it has, and has free:
    /// programs under such a limit see the whole device (NVIDIA/k8s-device-plugin#764).
    pub process_limit_bytes: u64 = u64::MAX,
    /// Addresses that can be reserved or allocated, in bytes; rounded down to the granularity.
    pub address_space_bytes: u64 = 64 << 40,
    /// Where the addresses begin. Devices of one process need ranges that do not overlap where
    /// an address must tell its device; a multiple of the granularity.
    // High enough that no offset is mistaken for an address.
    pub first_address: u64 = 2 << 40,
    /// How many granules may be mapped with access at one time. Counted in granules whatever the
    /// handle size, which is the stricter reading of what is known of the limit.
    // Lowest figure seen on an H100 with driver 580.82 ("516 to 523 thousand").
    pub mapping_limit: u64 = 516_000,
    /// At how many addresses one handle may be mapped at one time; a map beyond is out of memory.
    // Where one handle aliased into one range failed (lokic233/forkedkv).
    pub alias_limit: u64 = 5_637,
    /// The largest range that can be reserved, in bytes; a larger one is out of memory.
    pub reservation_limit_bytes: u64 = u64::MAX,
    /// How long the device takes to say what memory is free, in nanoseconds.
    pub memory_info_ns: u64 = 0,
    /// Whether reserve, create and map work; otherwise they answer `NotSupported`.
    pub has_virtual_memory: bool = true,
    /// Whether stream-ordered allocation works; otherwise it answers `NotSupported`.
    pub has_async_malloc: bool = true,
    /// Whether memory can be given to other processes; without it, no exportable pools.
    pub is_shareable: bool = true,
    /// A file that says what every process holds of the device, made if it is not there: those that
    /// name the same one share its memory. `None`: the device is this process's own.
    pub shared: Option<PathBuf> = None,
    /// Its host, if the device has no memory of its own. That is this process's alone then.
    pub host: Option<Host> = None,
    /// Memory that network cards reach directly.
    pub network_memory: NetworkMemory = NetworkMemory::Absent,
    /// Whether other devices may be given access to this one's memory, as its peers.
    pub has_peers: bool = true,
    /// Devices with a link to this one, by ordinal, that may be given access to its memory.
    pub peers: Vec<u32> = Vec::new(),
    /// How long after its work an event becomes ready, in nanoseconds.
    pub event_latency_ns: u64 = 0,
    /// Each event is late by a random time up to this more, in nanoseconds.
    pub event_jitter_ns: u64 = 0,
    /// Before every call the host clock moves by a random time up to this, in nanoseconds: the
    /// seeded scheduler that decides which work completes between two calls.
    pub clock_jitter_ns: u64 = 0,
    /// Whether a driver call moves the host clock by its modelled cost.
    pub calls_take_time: bool = false,
    /// Whether the host clock is the machine's own: calls that cost time, and waits, take it.
    pub is_real_time: bool = false,
    /// How many kernels a stream's queue takes: a launch beyond blocks the host until the oldest is
    /// done. 0 for a queue without end.
    // About so many launches fit into the queue of each stream (Stack Overflow 53970187).
    pub launch_queue: usize = 1024,
    /// Whether streams can be held while memory is mapped; otherwise they are not held.
    pub can_hold_streams: bool = true,
    /// Whether the default stream can be among them.
    pub can_hold_default_stream: bool = true,
    /// How many queues the device has for its streams: so many that wait, and all others stand
    /// behind them. 0 for a queue for each stream.
    pub connections: usize = 0,
    /// How many bytes a copy within the device reads or writes in a nanosecond.
    // Four fifths of what an A100-80G's data sheet says: 1.9 TB/s.
    pub copied_bytes_per_ns: f64 = 1500.0,
    /// Whether memory of the host can be made that the device maps.
    pub has_host_handles: bool = true,
    /// How many bytes a copy to or from the host moves in a nanosecond.
    // Three quarters of what a slot of PCIe 3.0 with 16 lanes has: 15.75 GB/s.
    pub bus_bytes_per_ns: f64 = 12.0,
    /// Whether the oracle watches (`check_alloc`, `check_use`, `check_free`).
    pub oracle: bool = false,
    /// The longest that a kernel pretended by the oracle runs, in nanoseconds; each draws its own.
    pub check_kernel_ns: u64 = 0,
    /// Whether a call that a correct caller never makes (unknown addresses, partial ranges, calls
    /// illegal in capture) counts as a [`Violation`](crate::Violation) on top of its error.
    pub strict: bool = false,
    /// The rules that a kinder device would not have.
    pub harsh: Harsh = Harsh::default(),
    /// Functions of the driver API that captures forbid to others than the table says, with what
    /// was found out of each.
    pub legality: Vec<(&'static str, Legality)> = Vec::new(),
    /// Called at each violation by the thread whose call it was, with the device locked: it must
    /// make no call itself.
    pub on_violation: Option<fn(&Violation)> = None,
    /// What each call costs.
    pub costs: CostTable = CostTable::default(),
    /// Seeds every random choice of the device.
    pub seed: u64 = 0,
}

/// What the host of an integrated device is like. Sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// What programs and the kernel have from the start.
    pub programs_bytes: u64,
    /// Whoever leaves less than this available stops the host, and the driver with it.
    pub line_bytes: u64,
    /// The largest handle that is made of pages which files had before.
    pub handle_bytes: u64,
    /// Where `proc/meminfo` is written at each change, if anywhere.
    pub root: Option<PathBuf>,
}
