//! The smallest device that completes a program, each way.

use anyhow::{Result, ensure};

use super::program::{Built, Program};
use super::run::{WAYS, completes};

/// The search ends when the answer is known to this many MiB.
const STEP_MIB: u64 = 8;
/// What the program may need, installed or preloaded with `prefer:memory`.
const MOST_MIB: u64 = 1908;
/// It completes on this much each way.
const AMPLE_MIB: u64 = 16 << 10;

/// Prints it for each way, and says what is more than it may be.
pub fn fit(built: &Built, program: &Program) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    println!("\n| {} | smallest device, MiB |\n| --- | --- |", program.name);
    for way in &WAYS {
        let fits = |mib: u64| completes(built, program, way, &format!("{mib}MiB"));
        let (mut refused, mut completed) = (0, AMPLE_MIB);
        ensure!(fits(completed)?, "{} does not complete on {completed} MiB", program.name);
        while completed - refused > STEP_MIB {
            let middle = refused.midpoint(completed);
            if fits(middle)? {
                completed = middle;
            } else {
                refused = middle;
            }
        }
        println!("| {} | {completed} |", way.name);
        if way.options.contains("memory") && completed > MOST_MIB {
            wrong.push(format!("{}, {}: needs {completed} MiB", program.name, way.name));
        }
    }
    Ok(wrong)
}
