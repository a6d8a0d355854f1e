//! The functions of the driver API, by what they are about.
//!
//! Lives here, bottom first: `host`, `virtual_memory`, `virtual_share`, `pool`, `pool_share`,
//! `pointer`, `memory`, `ipc` (memory); `copy`, `set`, `launch`, `stream_wait` (work); `event`,
//! `stream`, `capture`; `graph`, `graph_build`, `graph_query`; `module`, `library` (code);
//! `device`, `context`; `driver` and `proc_address` (the whole), and the list of all functions.

mod capture;
mod context;
mod copy;
mod device;
mod driver;
mod event;
mod graph;
mod graph_build;
mod graph_query;
mod host;
mod ipc;
mod launch;
mod library;
mod memory;
mod module;
mod pointer;
mod pool;
mod pool_share;
mod proc_address;
mod set;
mod stream;
mod stream_wait;
mod virtual_memory;
mod virtual_share;

use crate::entry::{self, Lists};

const MODULES: Lists = &[
    capture::FUNCTIONS,
    context::FUNCTIONS,
    copy::FUNCTIONS,
    device::FUNCTIONS,
    driver::FUNCTIONS,
    event::FUNCTIONS,
    graph::FUNCTIONS,
    graph_build::FUNCTIONS,
    graph_query::FUNCTIONS,
    host::FUNCTIONS,
    ipc::FUNCTIONS,
    launch::FUNCTIONS,
    library::FUNCTIONS,
    memory::FUNCTIONS,
    module::FUNCTIONS,
    pointer::FUNCTIONS,
    pool::FUNCTIONS,
    pool_share::FUNCTIONS,
    proc_address::FUNCTIONS,
    set::FUNCTIONS,
    stream::FUNCTIONS,
    stream_wait::FUNCTIONS,
    virtual_memory::FUNCTIONS,
    virtual_share::FUNCTIONS,
];

extern "C" fn list() {
    entry::list(MODULES);
}

// SAFETY: what is in this section is called as the library is loaded, with nothing that it needs.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = list;
