//! Mapped runs: what the pages of a window lead to, run by run.
//!
//! A remap takes granules that lie beside each other, and maps them in that order. So pages beside
//! each other mostly lead to granules beside each other: a window of hundreds of pages is a few
//! runs, and is looked at and claimed by runs.

/// Pages beside each other in a window, and what they lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MappedRun {
    pub(crate) pages: usize,
    pub(crate) to: Target,
}

/// What pages lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Granules that lie beside each other at home, from the one at this address on.
    Hit(u64),
    /// Nothing: to be mapped.
    Unmapped,
    /// Granules that cannot be used there.
    Stale,
}

impl MappedRun {
    /// Whether the page after these belongs to the same run.
    fn continues_with(&self, to: Target, granule_bytes: u64) -> bool {
        match (self.to, to) {
            (Target::Hit(first), Target::Hit(next)) => {
                first + self.pages as u64 * granule_bytes == next
            }
            (this, next) => this == next,
        }
    }
}

/// What pages in order lead to, as few runs.
pub(super) fn runs(pages: impl Iterator<Item = Target>, granule_bytes: u64) -> Vec<MappedRun> {
    let mut runs: Vec<MappedRun> = Vec::new();
    for to in pages {
        match runs.last_mut() {
            Some(run) if run.continues_with(to, granule_bytes) => run.pages += 1,
            _ => runs.push(MappedRun { pages: 1, to }),
        }
    }
    runs
}
