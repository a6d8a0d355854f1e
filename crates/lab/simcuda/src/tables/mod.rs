//! [`Tables`]: what the driver API knows of a device beyond what the simulated device does.
//!
//! Lives here, bottom first: `graphs`, `physicals`, `modules`, and all of them.

mod graphs;
mod modules;
mod physicals;

pub(crate) use graphs::{Exec, Graphs, Ongoing};
pub(crate) use modules::{Kernel, Modules};
pub(crate) use physicals::{Abroad, Mapped, Physical, Physicals};

use crate::abi::Raw;
use drystone_driver::MemoryPoolConfig;
use drystone_sim::{SharedFile, SimDevice};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;
use std::thread::ThreadId;

/// What the driver API knows beyond the simulated device.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub(crate) streams: HashMap<u64, StreamRecord>,
    /// Default streams of contexts that programs create: the legacy one, or a thread's own.
    pub(crate) defaults: HashMap<(Raw, Option<ThreadId>), u64>,
    pub(crate) events: HashMap<u64, EventRecord>,
    pub(crate) pools: Pools,
    pub(crate) physicals: Physicals,
    pub(crate) graphs: Graphs,
    pub(crate) modules: Modules,
}

impl Tables {
    /// Those of a fresh device.
    pub(crate) fn new(device: &SimDevice) -> Self {
        Self { pools: Pools::new(device), ..Self::default() }
    }

    /// Forgets what was of a context, and returns its events.
    pub(crate) fn end_context(&mut self, context: Raw) -> Vec<u64> {
        self.streams.retain(|_, stream| stream.context != context);
        self.defaults.retain(|&(of, _), _| of != context);
        self.modules.end_context(context);
        let gone = self.events.extract_if(|_, event| event.context == context);
        gone.map(|(event, _)| event).collect()
    }
}

/// How a stream was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRecord {
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) context: Raw,
    /// A thread's own default stream, which no program made.
    pub(crate) is_own: bool,
}

/// How an event was created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRecord {
    pub(crate) flags: u32,
    pub(crate) context: Raw,
}

/// What the driver API knows of a device's pools, by their values.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pub(crate) default: Option<u64>,
    pub(crate) current: Option<u64>,
    /// Which other devices may reach a pool, as bits.
    pub(crate) opened_to: HashMap<u64, u64>,
    /// Files that stand for pools that were exported.
    pub(crate) files: HashMap<u64, SharedFile>,
}

impl Pools {
    /// The pools of a fresh device: its default pool, where it has any.
    pub(crate) fn new(device: &SimDevice) -> Self {
        let default = device.add_memory_pool(&MemoryPoolConfig::default());
        Self { default: default.ok().map(|pool| pool.0), ..Self::default() }
    }

    /// Which other devices may reach a pool, as bits.
    pub(crate) fn reachable_by(&self, pool: u64) -> u64 {
        self.opened_to.get(&pool).copied().unwrap_or(0)
    }

    /// How many there are that no program made.
    pub(crate) const fn initial(&self) -> usize {
        if self.default.is_some() { 1 } else { 0 }
    }
}

/// A pointer that goes along with a function it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserData(pub(crate) *mut c_void);

// SAFETY: the API hands the pointer to the program's function unread, from whatever thread.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

/// Work, as a graph remembers it.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Kernel,
    Copy { to: u64, from: u64, bytes: u64 },
    Set { to: u64, value: u32, width: usize, count: u64 },
    Host { function: unsafe extern "C" fn(*mut c_void), data: UserData },
    Child { nodes: Arc<[Node]> },
    Empty,
    Allocate,
    Free,
}

impl Node {
    /// `CUgraphNodeType`
    pub(crate) const fn kind(&self) -> i32 {
        match self {
            Node::Kernel => 0,
            Node::Copy { .. } => 1,
            Node::Set { .. } => 2,
            Node::Host { .. } => 3,
            Node::Child { .. } => 4,
            Node::Empty => 5,
            Node::Allocate => 10,
            Node::Free => 11,
        }
    }
}
