//! [`Tables`]: what the driver API knows of a device beyond what the simulated device does.
//!
//! Lives here, bottom first: `node`, `graphs`, `pools`, `physicals`, `modules`, and all of them.

mod graphs;
mod modules;
mod node;
mod physicals;
mod pools;

pub(crate) use graphs::{Exec, Graphs, Ongoing};
pub(crate) use modules::{Kernel, Modules};
pub(crate) use node::{Node, UserData};
pub(crate) use physicals::{Abroad, Mapped, Physical, Physicals, next_number};
pub(crate) use pools::Pools;

use crate::abi::Raw;
use drystone_sim::SimDevice;
use std::collections::HashMap;
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
    /// Numbers of plain and stream-ordered allocations, by address, once they were asked for.
    pub(crate) numbers: HashMap<u64, u64>,
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRecord {
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) context: Raw,
    /// A thread's own default stream, which no program made.
    pub(crate) is_own: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRecord {
    pub(crate) flags: u32,
    pub(crate) context: Raw,
}
