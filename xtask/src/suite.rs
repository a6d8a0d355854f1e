//! Running tests, one program of them or several side by side: what they print is shown, and what
//! failed is told once more at the end, where a log that was cut still has it.
//!
//! Invariant: the error of a run names every test program that failed, with its last lines.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Write, stderr};
use std::num::NonZero;
use std::process::Command;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::command::{root, sh};

/// Lines of a test program that failed which are told again, the last ones.
const LINES: usize = 100;

/// Runs tests, in the repository's root unless they name a folder; the error holds what failed.
pub fn run(command: impl Into<Command>) -> Result<()> {
    run_to(command.into(), true)
}

/// Runs programs of tests side by side, one for each core, the first ones first. What one prints is
/// shown when it ends; what failed of all of them is one error.
pub fn side_by_side(commands: Vec<Command>) -> Result<()> {
    let outcomes = in_parallel(commands, |command| run_to(command, false)).into_iter();
    let failed: Vec<_> = outcomes.filter_map(|it| Some(format!("{:#}", it.err()?))).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// What comes of each piece of work, in their order, with as many at once as there are cores.
fn in_parallel<T: Send, R: Send>(pieces: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let left = Mutex::new(pieces.into_iter().enumerate());
    // Taken without holding the rest while it runs.
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (ended, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some((at, piece)) = next() {
                    // There is somebody to receive it.
                    let _ = ended.send((at, work(piece)));
                }
            });
        }
    });
    drop(ended);
    BTreeMap::from_iter(outcomes).into_values().collect()
}

/// Runs tests, and shows what they print: at once, or when they have ended.
fn run_to(mut command: Command, is_shown_at_once: bool) -> Result<()> {
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    let shown = format!("{command:?}").replace('"', "");
    eprintln!("$ {shown}");
    // A file and no pipe: what a test left running would hold that open.
    let folder = sh().create_temp_dir()?;
    let log = folder.path().join("log");
    let file = File::create(&log).context("make a file for what tests print")?;
    command.stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
    let mut tail = Command::new("tail");
    tail.args(["--follow", "--lines=+1", "--sleep-interval=0.2"]).arg(&log).stdout(stderr());
    tail.arg(format!("--pid={}", child.id()));
    let tail = is_shown_at_once.then(|| tail.spawn()).transpose().context("cannot start tail")?;
    let status = child.wait().with_context(|| format!("cannot wait for {shown}"))?;
    let printed = fs::read(&log).context("read what tests printed")?;
    match tail {
        Some(mut tail) => drop(tail.wait()),
        None => stderr().write_all(&printed)?,
    }
    let failures = || failures(&String::from_utf8_lossy(&printed));
    ensure!(status.success(), "{shown} failed: {status}\n{}", failures());
    Ok(())
}

/// What failed of what a run printed that failed: cargo names each test program before it runs and
/// says after it that it failed; other programs are one whole.
fn failures(printed: &str) -> String {
    let lines = printed.lines().map(str::trim_end);
    let lines: Vec<_> = lines.filter(|it| !it.is_empty() && !it.ends_with(" ... ok")).collect();
    let begins = |line: &str, heads: [&str; 2]| heads.iter().any(|head| line.starts_with(head));
    let has_failed = |program: &&[&str]| {
        program.iter().any(|it| begins(it, ["error: test failed", "error: doctest failed"]))
    };
    let programs = lines.chunk_by(|_, next| !begins(next, ["     Running ", "   Doc-tests "]));
    let failed: Vec<_> = programs.filter(has_failed).collect();
    let told = if failed.is_empty() { vec![&*lines] } else { failed };
    let last = told.iter().flat_map(|lines| &lines[lines.len().saturating_sub(LINES)..]);
    last.copied().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::{Command, LINES, failures, run, side_by_side};
    use crate::command::cmd;

    fn script(text: &str) -> Command {
        cmd!("sh -c {text}").into()
    }

    #[test]
    fn each_program_that_failed_is_told_and_no_other() {
        let output = "     Running one\ntest a ... ok\ntest result: ok\n     Running two\n\
            test b ... ok\ntest c ... FAILED\nleft: 1\n\
            error: test failed, to rerun pass `--test two`\n\
            \x20    Running three\ntest d ... ok\nerror: 1 target failed:";
        let expected = "     Running two\ntest c ... FAILED\nleft: 1\n\
            error: test failed, to rerun pass `--test two`";
        assert_eq!(failures(output), expected);
    }

    #[test]
    fn a_program_of_another_kind_tells_its_last_lines() {
        let told =
            failures(&(0..LINES + 5).map(|line| format!("line {line}\n")).collect::<String>());
        assert!(told.starts_with("line 5\n") && told.ends_with("line 104"), "{told}");
    }

    #[test]
    fn an_error_holds_what_was_printed_on_either_stream() {
        let error = run(script("echo first; echo second >&2; exit 3")).expect_err("it fails");
        let told = error.to_string();
        assert!(told.ends_with("exit status: 3\nfirst\nsecond"), "{told}");
    }

    #[test]
    fn programs_side_by_side_all_run_and_all_that_failed_are_told() {
        let ends = |code: i32| script(&format!("echo ends with {code}; exit {code}"));
        let error = side_by_side((0..5).map(ends).collect()).expect_err("four failed");
        let told = error.to_string();
        let count = told.lines().filter(|line| line.starts_with("ends with ")).count();
        assert!(count == 4 && !told.contains("ends with 0\n"), "{told}");
        assert!(side_by_side(vec![ends(0), ends(0)]).is_ok());
    }

    #[test]
    fn what_is_left_running_is_not_waited_for() {
        let error = run(script("sleep 60 & echo $!; exit 3")).expect_err("it fails").to_string();
        let left = error.lines().last().expect("it printed whom it left");
        cmd!("kill {left}").run().expect("it is still there");
    }
}
