//! A command of several parts: each is announced and timed, and a table at the end says how each
//! ended, with what failed below it.
//!
//! Invariant: a part that fails stops no other, and the command fails if any did.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How a part ended that did not fail.
pub enum Outcome {
    Passed,
    /// It cannot run on this machine, for this reason.
    Skipped(String),
}

/// What a part is called, and what it does.
pub type Part = (&'static str, fn() -> Result<Outcome>);

struct Row {
    name: &'static str,
    outcome: Result<Outcome>,
    took: Duration,
}

/// Runs all of them in order, and fails if one does.
pub fn run(parts: &[Part]) -> Result<()> {
    let mut rows = Vec::new();
    for (index, &(name, body)) in parts.iter().enumerate() {
        let place = format!("[{}/{}] {name}", index + 1, parts.len());
        eprintln!("\n{place}");
        let start = Instant::now();
        let row = Row { name, outcome: body(), took: start.elapsed() };
        eprintln!("{place} ... {}, {} s", row.result(), row.took.as_secs());
        rows.push(row);
    }
    print(&rows);
    let failed: Vec<_> = rows.iter().filter(|row| row.outcome.is_err()).map(|r| r.name).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    Ok(())
}

impl Row {
    fn result(&self) -> String {
        match &self.outcome {
            Ok(Outcome::Passed) => "ok".to_owned(),
            Ok(Outcome::Skipped(reason)) => format!("skipped: {reason}"),
            Err(_) => "FAILED".to_owned(),
        }
    }
}

fn print(rows: &[Row]) {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    eprintln!("\n{:width$}  seconds  result", "part");
    for row in rows {
        eprintln!("{:width$}  {:7}  {}", row.name, row.took.as_secs(), row.result());
    }
    let failed = rows.iter().filter(|row| row.outcome.is_err()).count();
    let passed = rows.iter().filter(|row| matches!(row.outcome, Ok(Outcome::Passed))).count();
    eprintln!("{passed} parts passed, {failed} failed, {} skipped", rows.len() - passed - failed);
    for row in rows {
        if let Err(error) = &row.outcome {
            eprintln!("\n{}: {error:#}", row.name);
        }
    }
}
