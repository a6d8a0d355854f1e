//! Running tests, one program of them or several side by side: what they print is shown, and what
//! failed is told once more at the end, where a log that was cut still has it.
//!
//! Invariant: the error of a run names every test program that failed, with its last lines.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, pipe};
use std::num::NonZero;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::root;

/// Lines of a test program that failed which are told again, the last ones.
const LINES: usize = 100;

/// How long nothing may be printed before a look whether the tests have ended.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs tests, in the repository's root unless they name a folder; the error holds what failed.
pub fn run(command: impl Into<Command>) -> Result<()> {
    run_to(command.into(), |line| eprintln!("{line}"))
}

/// Runs programs of tests side by side, one for each core, the first ones first. What one prints is
/// shown when it ends; what failed of all of them is one error.
pub fn side_by_side(commands: Vec<Command>) -> Result<()> {
    let outcomes = in_parallel(commands, |command| {
        let mut printed = String::new();
        let outcome = run_to(command, |line| printed.extend([line, "\n"]));
        eprint!("{printed}");
        outcome
    });
    let failed = outcomes.into_iter().filter_map(Result::err).map(|error| format!("{error:#}"));
    match failed.collect::<Vec<_>>() {
        failed if failed.is_empty() => Ok(()),
        failed => bail!("{}", failed.join("\n")),
    }
}

/// What comes of each piece of work, in their order, with as many at once as there are cores.
pub fn in_parallel<T: Send, R: Send>(pieces: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
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

/// Runs tests, and hands over each line that they print.
fn run_to(mut command: Command, mut show: impl FnMut(&str)) -> Result<()> {
    if command.get_current_dir().is_none() {
        command.current_dir(root());
    }
    let shown = format!("{command:?}").replace('"', "");
    eprintln!("$ {shown}");
    let (output, input) = pipe().context("make a pipe")?;
    command.stdout(input.try_clone().context("share a pipe")?).stderr(input);
    let mut child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
    // It holds the pipe's other ends, and the output would never end.
    drop(command);
    let (lines, printed) = mpsc::channel();
    thread::spawn(move || {
        let mut read = BufReader::new(output).split(b'\n').map_while(Result::ok);
        read.try_for_each(|line| lines.send(String::from_utf8_lossy(&line).into_owned()))
    });
    let mut all = Vec::new();
    loop {
        match printed.recv_timeout(PATIENCE) {
            Ok(line) => {
                show(&line);
                all.push(line);
            }
            // What a test left running holds the pipe open: nobody waits for that.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => break,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for {shown}"))?;
    if !status.success() {
        let lines: Vec<&str> = all.iter().map(String::as_str).collect();
        bail!("{shown} failed: {status}\n{}", failures(&lines));
    }
    Ok(())
}

/// What failed of what a run printed that failed: cargo names each test program before it runs and
/// says after it that it failed; other programs are one whole.
fn failures(printed: &[&str]) -> String {
    let lines = printed.iter().map(|line| line.trim_end());
    let lines: Vec<_> = lines.filter(|it| !it.is_empty() && !it.ends_with(" ... ok")).collect();
    let last = |from: usize, to: usize| &lines[from.max(to.saturating_sub(LINES))..to];
    let mut kept: Vec<&str> = Vec::new();
    let mut begin = 0;
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("     Running ") || line.starts_with("   Doc-tests ") {
            begin = at;
        }
        if line.starts_with("error: test failed") || line.starts_with("error: doctest failed") {
            kept.extend(last(begin, at + 1));
            begin = at + 1;
        }
    }
    if kept.is_empty() {
        kept.extend(last(begin, lines.len()));
    }
    kept.join("\n")
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
        assert_eq!(failures(&output.lines().collect::<Vec<_>>()), expected);
    }

    #[test]
    fn a_program_of_another_kind_tells_its_last_lines() {
        let output: Vec<_> = (0..LINES + 5).map(|line| format!("line {line}")).collect();
        let told = failures(&output.iter().map(String::as_str).collect::<Vec<_>>());
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
