//! Where in a file something is wrong.
//!
//! Invariant: an error names the value by its path, such as `device_traces[0][17].size`.

use std::fmt::{Display, Write as _};

use crate::codec::error::{Place, Problem};

pub(super) type Read<T> = Result<T, Fault>;

/// A problem, and the path to the value that has it, innermost step first.
pub(super) struct Fault {
    problem: Problem,
    path: Vec<String>,
}

impl Fault {
    /// The same, seen from one step further out.
    pub(super) fn at(mut self, step: impl Display) -> Self {
        self.path.push(step.to_string());
        self
    }

    /// The place by its path, and the problem.
    pub(super) fn place(self) -> (Place, Problem) {
        if self.path.is_empty() {
            return (Place::File, self.problem);
        }
        let mut path = String::new();
        for step in self.path.iter().rev() {
            let dot = if path.is_empty() || step.starts_with('[') { "" } else { "." };
            // Writing to a text cannot fail.
            let _ = write!(path, "{dot}{step}");
        }
        (Place::Item(path), self.problem)
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self { problem, path: Vec::new() }
    }
}

/// A key that a dictionary must have.
pub(super) fn missing(key: &'static str) -> Fault {
    Fault::from(Problem::Value { found: "missing".to_owned(), wants: "a value" }).at(key)
}
