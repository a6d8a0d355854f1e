//! A command of several parts: each is announced and timed, and a table at the end says how each
//! ended, with what failed below it.
//!
//! Invariant: a part that fails stops no other, and the command fails if any did.

use std::time::Instant;

use anyhow::{Result, ensure};

/// Why a part cannot run on this machine; no failure.
#[derive(Debug, thiserror::Error)]
#[error("skipped: {0}")]
pub struct Skipped(pub String);

/// What a part is called, and what it does.
pub type Part = (&'static str, fn() -> Result<()>);

/// Runs all of them in order, and fails if one does.
pub fn run(parts: &[Part]) -> Result<()> {
    let mut table = String::new();
    let mut failed = Vec::new();
    let width = parts.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (index, (name, body)) in parts.iter().enumerate() {
        let place = format!("[{}/{}] {name}", index + 1, parts.len());
        eprintln!("\n{place}");
        let start = Instant::now();
        let outcome = body();
        let seconds = start.elapsed().as_secs();
        let result = match outcome {
            Ok(()) => "ok".to_owned(),
            Err(error) if error.is::<Skipped>() => error.to_string(),
            Err(error) => {
                failed.push((*name, error));
                "FAILED".to_owned()
            }
        };
        eprintln!("{place} ... {result}, {seconds} s");
        table += &format!("{name:width$}  {seconds:7}  {result}\n");
    }
    eprintln!("\n{:width$}  seconds  result\n{table}", "part");
    failed.iter().for_each(|(name, error)| eprintln!("\n{name}: {error:#}"));
    let names: Vec<_> = failed.iter().map(|(name, _)| *name).collect();
    ensure!(failed.is_empty(), "failed: {}", names.join("; "));
    Ok(())
}
