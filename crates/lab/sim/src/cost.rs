//! What a driver call costs: three tables, with the source of every figure.
//!
//! Published figures differ by 25 times, so a conclusion should hold under all three. The PyTorch
//! rig prices PyTorch's allocators with the same, so that both sides of a comparison pay alike.
//! Replace a row when a measurement on real hardware says otherwise.
//!
//! Set access and unmap are priced by mapping: a call costs the sum over the mappings in its range,
//! in the published tables however large each is. The kernel driver maps and unmaps one handle at
//! a time (`uvm_map_external.c` of open-gpu-kernel-modules), and PyTorch's notes on expandable
//! segments say the same: mapping ten pages of 2 MiB takes ten times as long as one of 20 MiB.

use drystone_driver::Call;

const STEP_BYTES: f64 = crate::GRANULARITY_BYTES as f64;

/// Modelled cost of one kind of call, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// For a call of up to 2 MiB.
    pub first_us: f64,
    /// For each further 2 MiB of its size; for set access and unmap, each further mapping.
    pub per_further_2mib_us: f64,
    /// For set access and unmap: which part of that each 2 MiB of a mapping beyond its first takes.
    pub within_mapping: f64,
}

impl Cost {
    /// Microseconds of `calls` calls over `bytes` bytes in all.
    pub fn time_us(self, calls: u64, bytes: u64) -> f64 {
        let calls = calls as f64;
        let further = (bytes as f64 / STEP_BYTES - calls).max(0.0);
        calls * self.first_us + further * self.per_further_2mib_us
    }

    /// What a call over so many mappings is priced as, in bytes, if they have so many together.
    pub(crate) fn bytes_of_mappings(self, mappings: u64, bytes: u64) -> u64 {
        let firsts = mappings * crate::GRANULARITY_BYTES;
        firsts + (self.within_mapping * bytes.saturating_sub(firsts) as f64) as u64
    }
}

const fn cost(first_us: f64, per_further_2mib_us: f64) -> Cost {
    Cost { first_us, per_further_2mib_us, within_mapping: 0.0 }
}

/// The cost of every call.
#[derive(Clone, Debug, PartialEq)]
pub struct CostTable {
    costs: [Cost; Call::ALL.len()],
}

impl CostTable {
    /// The cost of `call`.
    pub fn get(&self, call: Call) -> Cost {
        self.costs[call as usize]
    }

    /// The same table with another cost for `call`.
    #[must_use]
    pub fn with(mut self, call: Call, cost: Cost) -> Self {
        self.costs[call as usize] = cost;
        self
    }
}

impl CostTable {
    /// An A100-80G: create, map, set access and unmap as kvcached's `bench_vmm` has them published,
    /// mean of one thread, 2 MiB a call. The rest as in [`vattention`](Self::vattention), or
    /// assumed.
    pub fn a100() -> Self {
        Self { costs: Call::ALL.map(a100) }
    }

    /// The table of the vAttention paper, 2 MiB a call.
    pub fn vattention() -> Self {
        Self::a100()
            .with(Call::Create, cost(29.0, 8.0))
            .with(Call::Map, cost(2.0, 0.5))
            .with(Call::SetAccess, cost(38.0, 38.0))
            .with(Call::Unmap, cost(34.0, 34.0))
    }

    /// A card of about 25 GB, from the same tool of kvcached: the cheapest creation published.
    pub fn small() -> Self {
        Self::a100()
            .with(Call::Create, cost(7.6, 2.1))
            .with(Call::Map, cost(1.05, 0.3))
            .with(Call::SetAccess, cost(20.8, 20.8))
            .with(Call::Unmap, cost(11.5, 11.5))
    }

    /// Every call costs nothing: what remains of a program's time is what it waits for.
    pub fn free() -> Self {
        Self { costs: Call::ALL.map(|_| Cost::default()) }
    }
}

impl Default for CostTable {
    fn default() -> Self {
        Self::a100()
    }
}

/// Microseconds as published, or assumed where nobody published any.
///
/// The second figure of create and map is 28 % of the first: kvcached on a GB10 reports 33 us for
/// a handle of 2 MiB and 325 us for one of 64 MiB, that is 9.4 us for each further 2 MiB. That the
/// ratio holds elsewhere is an assumption.
const fn a100(call: Call) -> Cost {
    match call {
        // kvcached's bench_vmm.
        Call::Create => cost(193.0, 54.0),
        // As published for `cudaMallocHost`: 2.3 ms up to 1 MB, 61 ms for 512 MB (University of
        // Virginia, memory management overhead).
        Call::CreateOnHost => cost(2300.0, 230.0),
        Call::Map => cost(1.45, 0.41),
        Call::SetAccess => cost(36.0, 36.0),
        Call::Unmap => cost(25.6, 25.6),
        // vAttention's paper, 2 MiB a call; giving addresses back is assumed to cost the same.
        Call::Release => cost(23.0, 0.0),
        Call::Reserve | Call::Unreserve => cost(2.0, 0.0),
        // Assumed. What a free or a synchronise waits for is not in here: the clocks have it.
        Call::Malloc => cost(100.0, 1.0),
        Call::Free => cost(200.0, 0.0),
        Call::MallocAsync => cost(2.0, 0.0),
        Call::CreateMemoryPool | Call::DestroyMemoryPool | Call::TrimMemoryPool => cost(10.0, 0.0),
        Call::EnablePeerAccess | Call::Export | Call::Import => cost(10.0, 0.0),
        Call::FreeAsync | Call::CreateEvent | Call::Record | Call::Wait => cost(1.0, 0.0),
        Call::DestroyEvent | Call::Query => cost(0.5, 0.0),
        // Assumed: a call for each stream and a look at a word; a launch. What a copy takes of the
        // device, the clock has.
        Call::Hold => cost(4.0, 0.0),
        Call::Copy => cost(2.0, 0.0),
        Call::SynchronizeEvent
        | Call::SynchronizeStream
        | Call::SynchronizeDevice
        | Call::FinishCopies => cost(5.0, 0.0),
        // Questions cost nanoseconds; they are neither counted nor priced.
        Call::MemoryInfo
        | Call::MemoryPoolUsage
        | Call::StreamUid
        | Call::CaptureStatus
        | Call::ExchangeCaptureMode => cost(0.0, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cost, CostTable};
    use drystone_driver::Call;

    #[test]
    fn a_call_pays_its_first_2_mib_once_and_every_further_2_mib() {
        let create = CostTable::default().get(Call::Create);
        assert_eq!(create.time_us(1, 2 << 20), 193.0);
        assert_eq!(create.time_us(1, 20 << 20), 193.0 + 9.0 * 54.0);
        assert_eq!(create.time_us(3, 6 << 20), 3.0 * 193.0);
        assert_eq!(create.time_us(0, 0), 0.0);
        // Smaller than 2 MiB is not cheaper, and never pays a negative share.
        assert_eq!(CostTable::default().get(Call::Malloc).time_us(2, 1024), 200.0);
    }

    #[test]
    fn a_mapping_pays_its_share_of_what_it_has_beyond_2_mib() {
        let one = Cost { first_us: 10.0, per_further_2mib_us: 8.0, within_mapping: 0.25 };
        // Two mappings of 2 and 8 MiB.
        let bytes = one.bytes_of_mappings(2, 10 << 20);
        assert_eq!(one.time_us(1, bytes), 10.0 + 8.0 + 3.0 * 0.25 * 8.0);
        assert_eq!(CostTable::a100().get(Call::Unmap).bytes_of_mappings(2, 10 << 20), 4 << 20);
    }

    #[test]
    fn questions_are_free_and_every_other_call_is_not() {
        let table = CostTable::default();
        for call in Call::ALL {
            assert_eq!(table.get(call) == Cost::default(), call.is_query(), "{call:?}");
        }
    }

    #[test]
    fn one_row_can_be_replaced() {
        let cheap = Cost { first_us: 7.6, ..Cost::default() };
        let table = CostTable::default().with(Call::Create, cheap);
        assert_eq!(table.get(Call::Create), cheap);
        assert_eq!(table.get(Call::Map), CostTable::default().get(Call::Map));
    }
}
