//! [`Rule`]: what a capture forbids. One table for the simulated device and for the simulated
//! `libcuda`: a row for each call, with who may make it while a stream is captured, and the public
//! source that says so. The functions that no allocator calls stand in [`Group`]s.
//!
//! Invariant: never kinder than a source. What nobody has published is [`Legality::Unproven`] and
//! treated as forbidden, unless the device is told to be kind ([`Harsh`](crate::Harsh)).

mod group;

pub use group::{Group, Legality};

use drystone_driver::{Call, CaptureMode};
use group::GROUPS;
use std::fmt::Write;

/// What a capture means for one call.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The function of CUDA's driver API, without its version.
    pub function: &'static str,
    /// The call of the driver trait that it stands behind, if any.
    pub call: Option<Call>,
    /// Who may make it.
    pub legality: Legality,
    /// Whether it is refused to everybody, and breaks the capture, when its own stream or event
    /// takes part in one.
    pub breaks_its_own: bool,
    /// Where that is written.
    pub source: &'static str,
}

/// The modes of captures, in the order of the table's columns.
pub const MODES: [CaptureMode; 3] =
    [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

/// `cuThreadExchangeStreamCaptureMode`, which tells captures and threads apart.
const MODE: &str = "CUDA driver API, `cuThreadExchangeStreamCaptureMode`";
const GUIDE: &str = "CUDA programming guide, CUDA graphs, prohibited and unhandled operations";
const NODES: &str = "CUDA programming guide, graph memory nodes";
const FORKS: &str = "CUDA programming guide, CUDA graphs, cross-stream dependencies and events";
const ASKS: &str = "CUDA driver API, `cuStreamIsCapturing`";
const GROWS: &str =
    "PyTorch grows expandable segments in a capture, unguarded (pytorch#128068, its graph tests)";
const FORK_EVENTS: &str =
    "PyTorch's notes on CUDA graphs: `wait_stream` in a capture makes and drops events";
const ATTRIBUTES: &str = "NVIDIA/cccl#11360, NVIDIA/cuda-python#2834";
const IDENTITY: &str = "NVIDIA/cccl#9395, #11118, on a captured stream; on others no public \
                        source: treated as illegal";
const GUARDED: &str =
    "PyTorch's `cudaMallocMaybeCapturing` is relaxed around it; NVIDIA/cuopt#1748";
const FREED: &str =
    "aws/aws-ofi-nccl#1342 is relaxed around it; it waits as a synchronisation does";
const PINNED: &str = "PyTorch's caching host allocator is relaxed around it";
const FREES_PINNED: &str = "microsoft/mscclpp (`gpuFreeHost`) is relaxed around it";
const NOTHING: &str = "no public source: treated as illegal";
/// The call succeeds there, or PyTorch would tell of it and not of the lack of memory.
const ASKED: &str = "PyTorch asks it, unguarded, where memory runs out in a capture \
                     (pytorch#187795); no public source says whether the capture outlives that: \
                     treated as illegal";
const UNMAPS: &str = "NCCL (`ncclCudaFree`) and meta-pytorch/torchcomms#3079 are relaxed around it";
const RELEASES: &str = "NCCL (`ncclCudaFree`) is relaxed around it";
const IMPORTS: &str =
    "meta-pytorch/torchcomms#3079 is relaxed around it, since it would break the capture";
const EXPORTS: &str = "NCCL's registration of windows (`dev_runtime.cc`) is relaxed around it";
const SETS_UP: &str = "NVIDIA/warp#1410: pools can be set up in a relaxed capture only";
const ENDS: &str = "NCCL (`ncclDevrFinalize`) is relaxed around it";
const HOLDS: &str =
    "CUDA driver API, graph memory operations: `cuGraphAddBatchMemOpNode` is what it becomes";
const HIP: &str = "HIP refuses it to be like CUDA (rocm-systems#7845, #10166); of CUDA itself no \
                   public source: treated as illegal";

const fn row(call: Call, function: &'static str, legality: Legality, source: &'static str) -> Rule {
    Rule { function, call: Some(call), legality, breaks_its_own: false, source }
}

const fn more(function: &'static str, legality: Legality, source: &'static str) -> Rule {
    Rule { function, call: None, legality, breaks_its_own: false, source }
}

impl Rule {
    const fn and_breaks_its_own(self) -> Self {
        Self { breaks_its_own: true, ..self }
    }

    /// The rows, those of the driver trait's calls first and in their order.
    pub const TABLE: [Rule; 40] = {
        use Legality::{Always, Captured, Nobody, Unproven, Unsafe};
        [
            row(Call::MemoryInfo, "cuMemGetInfo", Unproven, ASKED),
            row(Call::Reserve, "cuMemAddressReserve", Always, GROWS),
            row(Call::Unreserve, "cuMemAddressFree", Unsafe, RELEASES),
            row(Call::Create, "cuMemCreate", Always, GROWS),
            row(Call::CreateOnHost, "cuMemCreate", Always, GROWS),
            row(Call::Release, "cuMemRelease", Unsafe, RELEASES),
            row(Call::Map, "cuMemMap", Always, GROWS),
            row(Call::SetAccess, "cuMemSetAccess", Always, GROWS),
            row(Call::Unmap, "cuMemUnmap", Unsafe, UNMAPS),
            row(Call::Export, "cuMemExportToShareableHandle", Unsafe, EXPORTS),
            row(Call::Import, "cuMemImportFromShareableHandle", Unsafe, IMPORTS),
            row(Call::Malloc, "cuMemAlloc", Unsafe, GUARDED),
            row(Call::Free, "cuMemFree", Unsafe, FREED),
            row(Call::CreateMemoryPool, "cuMemPoolCreate", Unsafe, SETS_UP),
            row(Call::DestroyMemoryPool, "cuMemPoolDestroy", Unsafe, ENDS),
            row(Call::TrimMemoryPool, "cuMemPoolTrimTo", Unproven, HIP),
            row(Call::MemoryPoolUsage, "cuMemPoolGetAttribute", Unsafe, ATTRIBUTES),
            row(Call::MallocAsync, "cuMemAllocFromPoolAsync", Captured, NODES),
            row(Call::FreeAsync, "cuMemFreeAsync", Captured, NODES),
            row(Call::CreateEvent, "cuEventCreate", Always, FORK_EVENTS),
            row(Call::DestroyEvent, "cuEventDestroy", Always, FORK_EVENTS),
            row(Call::Record, "cuEventRecord", Captured, FORKS),
            row(Call::Query, "cuEventQuery", Unsafe, MODE).and_breaks_its_own(),
            row(Call::Wait, "cuStreamWaitEvent", Captured, FORKS),
            row(Call::SynchronizeEvent, "cuEventSynchronize", Unsafe, GUIDE).and_breaks_its_own(),
            row(Call::SynchronizeStream, "cuStreamSynchronize", Unsafe, GUIDE).and_breaks_its_own(),
            row(Call::SynchronizeDevice, "cuCtxSynchronize", Nobody, GUIDE),
            row(Call::StreamUid, "cuStreamGetId", Unproven, IDENTITY).and_breaks_its_own(),
            row(Call::CaptureStatus, "cuStreamIsCapturing", Always, ASKS),
            row(Call::ExchangeCaptureMode, "cuThreadExchangeStreamCaptureMode", Always, MODE),
            row(Call::EnablePeerAccess, "cuCtxEnablePeerAccess", Unproven, NOTHING),
            row(Call::Hold, "cuStreamBatchMemOp", Captured, HOLDS),
            row(Call::Copy, "cuMemcpyAsync", Captured, NODES),
            row(Call::FinishCopies, "cuStreamSynchronize", Unsafe, GUIDE),
            more("cuStreamQuery", Unsafe, GUIDE).and_breaks_its_own(),
            more("cuMemPoolSetAttribute", Unsafe, ATTRIBUTES),
            more("cuMemPoolSetAccess", Unsafe, SETS_UP),
            more("cuMemHostAlloc", Unsafe, PINNED),
            more("cuMemFreeHost", Unsafe, FREES_PINNED),
            more("cuMemAllocAsync", Captured, NODES),
        ]
    };

    /// Whether it reads or writes an attribute of a memory pool.
    pub(crate) fn is_of_attributes(&self) -> bool {
        self.source == ATTRIBUTES
    }

    /// The row of a call.
    pub const fn of(call: Call) -> &'static Rule {
        const TABLE: &[Rule] = &Rule::TABLE;
        &TABLE[call as usize]
    }

    /// The rule of a function of the driver API, by its name without a version.
    pub fn named(function: &str) -> Option<Rule> {
        let row = Self::TABLE.into_iter().find(|rule| rule.function == function);
        row.or_else(|| GROUPS.iter().find_map(|group| Self::in_group(group, function)))
    }

    fn in_group(group: &Group, function: &str) -> Option<Rule> {
        let function = group.functions().find(|&name| name == function)?;
        let &Group { legality, breaks_its_own, source, .. } = group;
        Some(Rule { function, call: None, legality, breaks_its_own, source })
    }

    /// Every rule, those of the rows first.
    pub fn all() -> impl Iterator<Item = Rule> {
        let grouped = GROUPS.iter().flat_map(Group::functions);
        let grouped = grouped.filter_map(Self::named);
        Self::TABLE.into_iter().chain(grouped)
    }

    /// The rule of a function that stands nowhere: what nobody has told of is forbidden.
    pub(crate) const fn unknown() -> Rule {
        more("", Legality::Unproven, NOTHING)
    }

    /// The table as Markdown, as `captures.md` has it.
    pub fn markdown() -> String {
        let mut text = String::from(
            "| call | kind | global | thread-local | relaxed | its own stream or event captured | \
             source |\n| --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for rule in &Self::TABLE {
            let cell = |mode| {
                let may = |is_own| rule.legality.permits(mode, is_own, CaptureMode::Global);
                match (may(true), may(false)) {
                    (true, true) => "legal",
                    (true, false) => "own only",
                    (false, true) => "others only",
                    (false, false) => "breaks",
                }
            };
            let own = if rule.breaks_its_own { "breaks" } else { "" };
            let [global, local, relaxed] = MODES.map(cell);
            let (function, kind, source) = (rule.function, rule.legality.name(), rule.source);
            let _ = writeln!(
                text,
                "| `{function}` | {kind} | {global} | {local} | {relaxed} | {own} | {source} |"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, Group, Rule};
    use drystone_driver::Call;

    #[test]
    fn every_call_has_its_row_and_every_row_a_name_and_a_source() {
        for call in Call::ALL {
            assert_eq!(Rule::of(call).call, Some(call));
        }
        // Two calls are the same function of the driver's.
        let is_twice = |rule: &&Rule| rule.call == Some(Call::FinishCopies);
        for rule in Rule::TABLE.iter().filter(|rule| !is_twice(rule)) {
            assert!(!rule.source.is_empty());
            let found = Rule::named(rule.function).map(|found| found.source);
            assert_eq!(found, Some(rule.source), "{} has two rows", rule.function);
        }
        for function in GROUPS.iter().flat_map(Group::functions) {
            let in_groups =
                GROUPS.iter().filter(|group| group.functions().any(|one| one == function));
            assert_eq!(in_groups.count(), 1, "{function} is told twice");
            let in_rows = Rule::TABLE.iter().any(|rule| rule.function == function);
            assert!(!in_rows, "{function} is told twice");
        }
        assert!(Rule::named("cuTeleport").is_none());
    }
}
