//! [`Row`]: one trace on one device, Drystone beside PyTorch's allocators.

use serde_json::Value;

/// What each of them made of one trace on one device.
#[derive(Debug)]
pub struct Row {
    /// Name of the trace.
    pub trace: String,
    /// Name of the table of prices.
    pub costs: String,
    /// Size of the device as it was asked for.
    pub device: String,
    /// Drystone's replay; fields as `drystone sweep --json` names them.
    pub ours: Value,
    /// Expandable segments' replay.
    pub expandable: Value,
    /// The native allocator's replay.
    pub native: Value,
    /// That of PyTorch over the driver's own pool.
    pub pool: Value,
}

/// A figure of a replay, where it was measured.
pub fn figure(run: &Value, field: &str) -> Option<f64> {
    run[field].as_f64().or_else(|| run["device_time"][field].as_f64())
}

impl Row {
    /// The rows of one trace's report, with Drystone in this configuration.
    pub fn all_of(trace: &Value, configuration: &str) -> Vec<Row> {
        let cells: Vec<&Value> = trace["cells"].as_array().into_iter().flatten().collect();
        let find = |allocator: &str, ours: &Value| {
            let is_meant = |cell: &&&Value| {
                cell["allocator"] == allocator
                    && cell["configuration"] == ""
                    && ["costs", "device"].iter().all(|&field| cell[field] == ours[field])
            };
            cells.iter().find(is_meant).map(|cell| (*cell).clone()).unwrap_or_default()
        };
        let ours = cells.iter().filter(|cell| {
            cell["allocator"] == "drystone-vmm" && cell["configuration"] == configuration
        });
        let row = |ours: &&Value| Row {
            trace: trace["trace"].as_str().unwrap_or_default().to_owned(),
            costs: ours["costs"].as_str().unwrap_or_default().to_owned(),
            device: ours["device"].as_str().unwrap_or_default().to_owned(),
            ours: (*ours).clone(),
            expandable: find("torch-expandable", ours),
            native: find("torch-native", ours),
            pool: find("torch-async", ours),
        };
        ours.map(row).collect()
    }

    /// Drystone's figure over that of expandable segments. 0 where both are nothing.
    pub fn over_expandable(&self, field: &str) -> Option<f64> {
        let (ours, theirs) = (self.ours[field].as_f64()?, self.expandable[field].as_f64()?);
        Some(if ours == 0.0 { 0.0 } else { ours / theirs })
    }
}
