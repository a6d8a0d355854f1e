//! What a check found broken. A check proves one numbered invariant (`docs/invariants.md`).

use std::fmt;

/// An invariant that does not hold, with what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The invariant's number: 7 for I7.
    pub invariant: u8,
    /// What was found.
    pub finding: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "I{} is broken: {}", self.invariant, self.finding)
    }
}

impl std::error::Error for Broken {}

pub(crate) fn hold(
    invariant: u8,
    holds: bool,
    finding: impl FnOnce() -> String,
) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { invariant, finding: finding() }) }
}
