//! [`Rule`]: what a capture forbids. One table for the simulated device and for the simulated
//! `libcuda`, `captures.md`: a row for each call, with who may make it while a stream is captured,
//! and the public source that says so; and one for each group of functions that no allocator calls.
//!
//! Invariant: never kinder than a source. What nobody has published is [`Legality::Unproven`] and
//! treated as forbidden, unless the device is told to be kind ([`Harsh`](crate::Harsh)). A function
//! of a group stands in one place. Where the source of a neighbour tells nothing of a function, it
//! is among those of which nobody has told.

use std::sync::LazyLock;

use drystone_driver::{Call, CaptureMode};

/// Who may make a call while a stream is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legality {
    /// Everybody, in every capture.
    Always,
    /// Everybody: on a stream that takes part, the call becomes part of the graph.
    Captured,
    /// Nobody whom a capture forbids "potentially unsafe" calls. It breaks those captures.
    Unsafe,
    /// Nobody has said. Forbidden as if unsafe.
    Unproven,
    /// Nobody, in whatever mode: the call is about all streams. It breaks every capture.
    Nobody,
}

impl Legality {
    /// Whether a capture in mode `capture` lets a thread in mode `thread` make the call; `is_own`
    /// when that thread began the capture. The rule is that of
    /// `cuThreadExchangeStreamCaptureMode`.
    pub fn permits(self, capture: CaptureMode, is_own: bool, thread: CaptureMode) -> bool {
        let by_own = is_own && capture != CaptureMode::Relaxed;
        match (self, thread) {
            (Self::Always | Self::Captured, _) => true,
            (Self::Nobody, _) => false,
            (_, CaptureMode::Relaxed) => true,
            (_, CaptureMode::ThreadLocal) => !by_own,
            (_, CaptureMode::Global) => !by_own && capture != CaptureMode::Global,
        }
    }

    /// By its name in the page.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "always legal" => Self::Always,
            "captured" => Self::Captured,
            "unsafe" => Self::Unsafe,
            "unproven" => Self::Unproven,
            "never legal" => Self::Nobody,
            _ => return None,
        })
    }
}

/// What a capture means for one function.
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

/// Of attributes of memory pools.
const ATTRIBUTES: &str = "NVIDIA/cccl#11360, NVIDIA/cuda-python#2834";
const NOTHING: &str = "no public source: treated as illegal";

/// The rows of the page by themselves, and the functions of its groups.
static RULES: LazyLock<[Vec<Rule>; 2]> = LazyLock::new(|| {
    let [mut rows, mut grouped] = [Vec::new(), Vec::new()];
    let mut calls = Call::ALL.into_iter();
    for line in include_str!("../captures.md").lines() {
        let cells: Vec<_> = line.trim_matches(['|', ' ']).split('|').map(str::trim).collect();
        let rule = |function: &'static str, kind, own, source| {
            let function = function.trim_matches('`');
            let legality = Legality::named(kind)?;
            Some(Rule { function, call: None, legality, breaks_its_own: own == "breaks", source })
        };
        match cells[..] {
            [function, kind, _, _, _, own, source] => {
                let row = rule(function, kind, own, source);
                rows.extend(row.map(|row| Rule { call: calls.next(), ..row }));
            }
            [kind, functions, own, source] => {
                grouped
                    .extend(functions.split(", ").filter_map(|one| rule(one, kind, own, source)));
            }
            _ => {}
        }
    }
    [rows, grouped]
});

impl Rule {
    /// The rows, those of the driver trait's calls first and in their order.
    pub fn table() -> &'static [Rule] {
        &RULES[0]
    }

    /// Whether it reads or writes an attribute of a memory pool.
    pub(crate) fn is_of_attributes(&self) -> bool {
        self.source == ATTRIBUTES
    }

    /// The row of a call.
    pub fn of(call: Call) -> &'static Rule {
        &Self::table()[call as usize]
    }

    /// The rule of a function of the driver API, by its name without a version.
    pub fn named(function: &str) -> Option<Rule> {
        Self::all().find(|rule| rule.function == function)
    }

    /// Every rule, those of the rows first.
    pub fn all() -> impl Iterator<Item = Rule> {
        RULES.iter().flatten().copied()
    }

    /// The rule of a function that stands nowhere: what nobody has told of is forbidden.
    pub(crate) const fn unknown() -> Rule {
        let (function, legality, source) = ("", Legality::Unproven, NOTHING);
        Rule { function, call: None, legality, breaks_its_own: false, source }
    }
}

#[cfg(test)]
mod tests {
    use super::{ATTRIBUTES, Legality, NOTHING, Rule};
    use drystone_driver::Call;

    #[test]
    fn every_call_has_its_row_and_every_function_one_row_with_a_source() {
        for (call, row) in Call::ALL.into_iter().zip(Rule::table()) {
            assert_eq!(row.call, Some(call));
            let name = call.cuda_name().replace("cudaMallocAsync", "cuMemAllocFromPoolAsync");
            let name = name.replace("cudaMalloc", "cuMemAlloc").replace("cudaFree", "cuMemFree");
            let name = name.replace("cudaDevice", "cuCtx").replace("cuda", "cu");
            assert_eq!(row.function, name, "{call:?}");
        }
        assert_eq!(Rule::table().iter().filter(|row| row.call.is_none()).count(), 6);
        // Two calls each are the same function of the driver's.
        let is_twice = |call| matches!(call, Some(Call::FinishCopies | Call::CreateOnHost));
        for rule in Rule::all().filter(|rule| !is_twice(rule.call)) {
            assert!(!rule.source.is_empty() && rule.function.starts_with("cu"), "{rule:?}");
            let same = Rule::all().filter(|one| one.function == rule.function);
            let count = same.filter(|one| !is_twice(one.call)).count();
            assert_eq!(count, 1, "{} is told twice", rule.function);
            let is_unproven = rule.source.ends_with(NOTHING);
            assert!(!is_unproven || rule.legality == Legality::Unproven, "{rule:?}");
        }
        assert!(Rule::all().any(|rule| rule.source == ATTRIBUTES) && Rule::all().count() > 250);
        assert!(Rule::named("cuTeleport").is_none());
    }
}
