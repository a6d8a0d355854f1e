//! What the subcommands that take several files have in common: files in, tables or JSON out.
//!
//! Invariant: a file that cannot be used is told at once, with one line on standard error, and the
//! others are reported all the same, in the order of the files.

use anyhow::Result;
use drystone_trace::model::Trace;

use crate::args::Files;
use crate::input::{self, Input};
use crate::jobs::{self, Progress};
use crate::output;
use crate::report::json::{self, Failed};

#[derive(Clone, Copy, Debug)]
pub struct Tables<'a> {
    pub command: &'a str,
    pub json: bool,
    /// Replays that each trace takes. Without any, what was recorded of it is kept.
    pub replays: usize,
}

impl Tables<'_> {
    /// Makes a report of each trace, given the name of its file, and prints what `text` makes of
    /// it, as early as the order allows. Returns the reports and the files that failed.
    pub fn run<R: Send + serde::Serialize>(
        &self,
        files: &Files,
        work: impl Fn(&str, Trace, &Progress) -> Result<R> + Sync,
        text: impl Fn(&R) -> String,
    ) -> Result<(Vec<R>, Vec<Failed>)> {
        let (inputs, failures) = input::expand(&files.files);
        let mut errors = Vec::new();
        for failure in failures {
            tell(&mut errors, format!("{failure:#}"));
        }
        let progress = Progress::new((inputs.len() * self.replays.max(1)) as u64);
        let mut reports = Vec::new();
        let mut printed = Ok(());
        let work = |input: &_| self.reports(input, &progress, &work);
        jobs::run(&inputs, files.jobs(), &progress, work, |_, result| match result {
            Ok(more) => {
                for report in more {
                    if !self.json && printed.is_ok() {
                        printed = output::print(&text(&report));
                    }
                    reports.push(report);
                }
            }
            Err(error) => tell(&mut errors, format!("{error:#}")),
        });
        drop(progress);
        printed?;
        if self.json {
            output::print(&json::render(self.command, &reports, &errors)?)?;
        }
        Ok((reports, errors))
    }

    /// The reports of a file.
    fn reports<R>(
        &self,
        input: &Input,
        progress: &Progress,
        work: impl Fn(&str, Trace, &Progress) -> Result<R>,
    ) -> Result<Vec<R>> {
        let file = input.name();
        progress.show(&file);
        let mut traces = input::read(input)?;
        if self.replays > 0 {
            // The bar expects one trace.
            progress.expect_more((traces.len().saturating_sub(1) * self.replays) as u64);
            // Not needed, and larger than the events.
            traces.iter_mut().for_each(|trace| trace.recording = None);
        } else {
            progress.step(&file);
        }
        traces.into_iter().map(|trace| work(&file, trace, progress)).collect()
    }
}

/// Tells of a file that cannot be used and remembers it.
fn tell(errors: &mut Vec<Failed>, message: String) {
    output::complain(&message);
    errors.push(Failed { message });
}

/// How a command ended, apart from errors that end it at once. Its number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All files were used; nothing ran out of memory.
    Well,
    /// All files were used; an allocator ran out of memory.
    OutOfMemory,
    /// A file could not be used; the others were.
    BadInput,
}

/// How a command with these errors ended.
pub fn ended(errors: &[Failed], out_of_memory: bool) -> Ended {
    match (errors.is_empty(), out_of_memory) {
        (false, _) => Ended::BadInput,
        (true, true) => Ended::OutOfMemory,
        (true, false) => Ended::Well,
    }
}
