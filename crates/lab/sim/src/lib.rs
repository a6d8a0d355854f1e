//! A simulated GPU behind [`drystone_driver::Driver`]: clocks, capacity, costs, faults, an oracle.
//!
//! Lives here, bottom first; a module uses only those above it:
//! - `rng`, `clock`, `cost`, `counter`, `fault`, `handle_table`, `interval_map`,
//!   `shared_file`, `held`, `violation`
//! - `harsh`, `legality`: the rules of a harsh device, and what captures forbid to whom
//! - `config`, `profile`, `measured`, `happens_before`, `memory`: what it is like, and what it has
//! - `capture`, `stream`, `event`, `contents`, `oracle`: work, its order, and who checks it
//! - `state`, `calls`: all that behind one lock, and what each call does to it
//! - `device`, and its sides: `running`, `driver`, `harness`, `program`, `graph_memory`
//!
//! It refuses what a real driver refuses; the oracle reports what a real driver would let pass and
//! what would then corrupt data. Keeps: a call that fails has changed nothing; the same seed and
//! calls give the same answers; handle values are recycled at once, stream identities never.
//!
//! ```
//! use drystone_driver::{Driver, Stream};
//! use drystone_sim::{SimConfig, SimDevice};
//!
//! let device = SimDevice::new(SimConfig { total_bytes: 1 << 30, ..SimConfig::default() });
//! let event = device.create_event()?;
//! device.launch(Stream::DEFAULT, 500)?; // a kernel of 500 ns
//! device.record(event, Stream::DEFAULT)?;
//! assert!(!device.query(event)?);
//! device.advance_by(500);
//! assert!(device.query(event)?);
//! device.destroy_event(event)?;
//! assert!(device.live_objects().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod calls;
mod capture;
mod clock;
mod config;
mod contents;
mod cost;
mod counter;
mod device;
mod driver;
mod event;
mod fault;
mod graph_memory;
mod handle_table;
mod happens_before;
mod harness;
mod harsh;
mod held;
mod interval_map;
mod legality;
mod measured;
mod memory;
mod oracle;
mod profile;
mod program;
mod refuse;
mod rng;
mod running;
mod shared_file;
mod state;
mod stream;
mod violation;

pub use config::{Host, NetworkMemory, SimConfig};
pub use cost::{Cost, CostTable};
pub use device::{LiveObjects, SimDevice};
pub use event::Mark;
pub use fault::{FaultMode, FaultPlan, Faults};
pub use handle_table::HandleTable;
pub use harsh::Harsh;
pub use held::{Gate, Moved};
pub use legality::{Legality, MODES, Rule};
pub use measured::{Measured, MeasuredError};
pub use profile::Profile;
pub use program::{Extent, ExtentKind};
pub use rng::Rng;
pub use shared_file::{FileIdentity, SharedFile};
pub use stream::Context;
pub use violation::Violation;

/// Smallest physical handle and alignment of mappings, in bytes. Every data-centre GPU in use has
/// this one, so it is not an option.
pub const GRANULARITY_BYTES: u64 = 2 << 20;
