//! [`Measured`]: a device as `results.json` tells of it, which the pack of `cargo xtask gpu` writes
//! on a machine with a GPU: what its calls cost, where its limits are, what its captures forbid.
//!
//! Invariant: never more than was measured. What a step did not come to (it failed, was skipped, or
//! is of an earlier pack) stays as the configuration has it that this is applied to, and is named.

mod costs;
mod legality;
mod rows;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use drystone_driver::Call;

use crate::config::{NetworkMemory, SimConfig};
use crate::cost::CostTable;
use crate::legality::Legality;
use rows::Rows;

const MIB: u64 = 1 << 20;

/// Why a file is no device.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's own words.
        source: std::io::Error,
    },
    /// It is something else.
    #[error("{} is no results.json of `cargo xtask gpu`: {why}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
}

/// What was measured of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// Its memory, in bytes; `None` if that is unknown, as all below.
    pub total_bytes: Option<u64>,
    /// How much of it the device says is free and does not give.
    pub withheld_bytes: Option<u64>,
    /// What calls cost; of those that were not measured, nothing is in here.
    costs: Vec<(Call, crate::cost::Cost)>,
    legality: Vec<(&'static str, Legality)>,
    alias_limit: Option<u64>,
    mapping_limit: Option<u64>,
    reservation_limit_bytes: Option<u64>,
    launch_queue: Option<usize>,
    memory_info_ns: Option<u64>,
    has_virtual_memory: Option<bool>,
    has_async_malloc: Option<bool>,
    is_shareable: Option<bool>,
    network_memory: Option<NetworkMemory>,
}

impl Measured {
    /// Reads the results of a run.
    ///
    /// Errors: the file cannot be read, or is something else.
    pub fn read(path: &Path) -> Result<Self, MeasuredError> {
        let other = |why: String| MeasuredError::Other { path: path.to_owned(), why };
        let text = fs::read_to_string(path)
            .map_err(|source| MeasuredError::Unreadable { path: path.to_owned(), source })?;
        let results: Value =
            serde_json::from_str(&text).map_err(|error| other(error.to_string()))?;
        let steps = results["steps"].as_array();
        let steps = steps.ok_or_else(|| other("it has no list of steps".to_owned()))?;
        let measured = Self::of(&Rows { steps });
        if measured.costs.is_empty() && measured.total_bytes.is_none() {
            return Err(other("none of its steps tells what memory there is, or costs".to_owned()));
        }
        Ok(measured)
    }

    fn of(rows: &Rows<'_>) -> Self {
        let mut device =
            Self { costs: costs::of(rows), legality: legality::of(rows), ..Self::default() };
        rows.of("probe").for_each(|row| device.note_probe(row));
        rows.of("limits").for_each(|row| device.note_limit(row));
        device
    }

    fn note_probe(&mut self, row: &Value) {
        let works = || row["outcome"] == "works";
        if let (Some(name), Some(mib)) = (row["device"].as_str(), row["total MiB"].as_u64()) {
            self.name = name.to_owned();
            self.total_bytes = Some(mib * MIB);
        }
        match (row["handles"].as_str(), row["for RDMA"].as_bool()) {
            (Some("none"), Some(false)) => self.has_virtual_memory = Some(works()),
            (Some("none"), Some(true)) => {
                self.network_memory = Some(match row["device says RDMA"].as_bool() {
                    Some(true) if works() => NetworkMemory::Works,
                    Some(true) => NetworkMemory::Broken,
                    _ => NetworkMemory::Absent,
                });
            }
            (Some("file descriptor"), Some(false)) => self.is_shareable = Some(works()),
            (Some("memory pool"), _) => self.has_async_malloc = Some(works()),
            _ => {}
        }
        if let Some(gib) = row["addresses GiB"].as_u64()
            && !works()
        {
            // Nothing is known of what lies between it and the last that worked.
            let most = (gib << 30) - 1;
            let limit = self.reservation_limit_bytes.get_or_insert(most);
            *limit = most.min(*limit);
        }
    }

    /// A limit was found if something refused to go on, and not if the search ended.
    fn note_limit(&mut self, row: &Value) {
        let found = row["reached"].as_u64().filter(|_| row["refused"] == true);
        match row["limit"].as_str() {
            Some("addresses of one handle") => self.alias_limit = found,
            Some("mappings with access") => self.mapping_limit = found,
            Some("free memory that is refused") => self.withheld_bytes = found,
            Some("launches in a queue") => self.launch_queue = found.map(|most| most as usize),
            _ => {}
        }
        if let (Some("cuMemGetInfo"), Some(us)) = (row["call"].as_str(), row["us p50"].as_f64()) {
            self.memory_info_ns = Some((us * 1e3) as u64);
        }
    }

    /// What calls cost on it, and on a device of `base` where that was not measured.
    pub fn costs(&self, base: CostTable) -> CostTable {
        self.costs.iter().fold(base, |table, &(call, cost)| table.with(call, cost))
    }

    /// A device like `config` that is like this one as far as it was measured.
    #[must_use]
    pub fn applied_to(&self, config: SimConfig) -> SimConfig {
        let mut legality = config.legality;
        legality.retain(|old| self.legality.iter().all(|new| new.0 != old.0));
        legality.extend(&self.legality);
        let total_bytes = self.total_bytes.unwrap_or(config.total_bytes);
        let withheld = self.withheld_bytes.map(|bytes| total_bytes.saturating_sub(bytes));
        SimConfig {
            total_bytes,
            process_limit_bytes: withheld.unwrap_or(config.process_limit_bytes),
            costs: self.costs(config.costs),
            legality,
            alias_limit: self.alias_limit.unwrap_or(config.alias_limit),
            mapping_limit: self.mapping_limit.unwrap_or(config.mapping_limit),
            reservation_limit_bytes: self
                .reservation_limit_bytes
                .unwrap_or(config.reservation_limit_bytes),
            launch_queue: self.launch_queue.unwrap_or(config.launch_queue),
            memory_info_ns: self.memory_info_ns.unwrap_or(config.memory_info_ns),
            has_virtual_memory: self.has_virtual_memory.unwrap_or(config.has_virtual_memory),
            has_async_malloc: self.has_async_malloc.unwrap_or(config.has_async_malloc),
            is_shareable: self.is_shareable.unwrap_or(config.is_shareable),
            network_memory: self.network_memory.unwrap_or(config.network_memory),
            ..config
        }
    }

    /// What stays as it was: the calls without a cost, by name.
    pub fn unpriced(&self) -> Vec<&'static str> {
        let calls = Call::ALL.into_iter();
        let is_priced = |call| self.costs.iter().any(|cost| cost.0 == call);
        // The host's memory has a call with the device's, which `cargo xtask gpu` does not time.
        let is_told = |call: Call| !call.is_query() && call != Call::CreateOnHost;
        let left = calls.filter(|&call| is_told(call) && !is_priced(call));
        left.map(|call| crate::legality::Rule::of(call).function).collect()
    }
}

#[cfg(test)]
mod tests;
