//! What a check found broken. A check proves one numbered invariant (`docs/inside/invariants.md`).

/// An invariant that does not hold, with what was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("I{invariant} is broken: {finding}")]
#[non_exhaustive]
pub struct Broken {
    /// The invariant's number: 7 for I7.
    pub invariant: u8,
    /// What was found.
    pub finding: String,
}

pub(crate) fn hold(
    invariant: u8,
    holds: bool,
    finding: impl FnOnce() -> String,
) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { invariant, finding: finding() }) }
}
