//! Public reports of memory bugs under each allocator: `cargo xtask bugs`.
//!
//! Lives here: the allocators, and the runs of the programs of `bugs/`, each in a process of its
//! own on the device that its comment names. `docs/evidence/bugs-2026.md` holds what each came to,
//! and is the only place that does: a figure of Drystone's that is worse than there is an error,
//! and so is any other that differs. `--write` writes what was found into the page.

mod figure;
mod page;

use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::command::{TORCH_VERSION, root, target};
use crate::torch::{self, TorchVenv};
use figure::{Change, change};
use page::{Page, Row};

/// Where the figures are.
const PAGE: &str = "docs/evidence/bugs-2026.md";
/// What `PYTORCH_ALLOC_CONF` has for each allocator, beside the program's own settings, and how
/// Drystone comes in. The order is that of the page's columns.
const ALLOCATORS: [Allocator; 6] = [
    Allocator { name: "native", setting: "", drystone: None },
    Allocator { name: "expandable", setting: "expandable_segments:True", drystone: None },
    Allocator { name: "cudaMallocAsync", setting: ASYNC, drystone: None },
    Allocator { name: "Drystone", setting: "", drystone: Some(Route::Compiled("")) },
    Allocator { name: "prefer:memory", setting: "", drystone: Some(Route::Compiled(MEMORY)) },
    Allocator { name: "preloaded", setting: ASYNC, drystone: Some(Route::Preloaded) },
];
const ASYNC: &str = "backend:cudaMallocAsync";
const MEMORY: &str = "prefer:memory";

struct Allocator {
    name: &'static str,
    setting: &'static str,
    drystone: Option<Route>,
}

#[derive(Clone, Copy)]
enum Route {
    /// With options.
    Compiled(&'static str),
    Preloaded,
}

/// Of the command.
#[derive(clap::Args)]
pub struct Args {
    /// These programs alone.
    names: Vec<String>,
    /// Write what they came to into the page.
    #[arg(long)]
    write: bool,
}

/// What every run needs.
struct Bench {
    torch: TorchVenv,
    libraries: PathBuf,
    package: PathBuf,
    target: PathBuf,
}

/// Runs all programs, or those that are named, prints their rows, and holds them against the page,
/// or writes them into it.
pub fn bugs(args: &Args) -> Result<()> {
    let text = fs::read_to_string(root().join(PAGE)).context("read the page")?;
    let mut page = Page::read(&text)?;
    if let Some(name) = args.names.iter().find(|name| page.row(name).is_none()) {
        bail!("{PAGE} has no program {name}; it has {}", page.names().join(", "));
    }
    let bench = Bench::set_up()?;
    let mut found = Vec::new();
    println!("{}", page::head(ALLOCATORS.map(|allocator| allocator.name)));
    for name in page.names() {
        if !args.names.is_empty() && !args.names.contains(&name) {
            continue;
        }
        let now = bench.row(&name)?;
        println!("{now}");
        if let Some(before) = page.row(&name) {
            found.extend(differences(before, &now));
        }
        page.put(now);
    }
    found.iter().for_each(|difference| eprintln!("{difference}"));
    if args.write {
        return fs::write(root().join(PAGE), page.text()).context("write the page");
    }
    let wrong = found.iter().filter(|difference| difference.is_error).count();
    if wrong > 0 {
        bail!(
            "{wrong} figures are not those of {PAGE}; if they are to be: cargo xtask bugs --write"
        );
    }
    Ok(())
}

/// A figure that is not the page's.
struct Difference {
    text: String,
    is_error: bool,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.is_error { "error" } else { "note" };
        write!(f, "{mark}: {}", self.text)
    }
}

/// What differs from the page. Better is no error where Drystone is, since its page is then merely
/// modest; of the others the page may say nothing that is not so.
fn differences(page: &Row, now: &Row) -> Vec<Difference> {
    let mut found = Vec::new();
    if page.right != now.right {
        let text = format!("{}: right is {}, by the page {}", now.name, now.right, page.right);
        found.push(Difference { text, is_error: true });
    }
    for ((allocator, before), after) in ALLOCATORS.iter().zip(&page.came_to).zip(&now.came_to) {
        let (word, is_error) = match change(before, after) {
            Change::None => continue,
            Change::Better => ("better", allocator.drystone.is_none()),
            Change::Worse => ("worse", true),
        };
        let (program, allocator) = (&now.name, allocator.name);
        let text = format!("{program}, {allocator}: {after} is {word} than the page's {before}");
        found.push(Difference { text, is_error });
    }
    found
}

impl Bench {
    fn set_up() -> Result<Self> {
        Ok(Self {
            torch: torch::set_up(TORCH_VERSION)?,
            libraries: crate::capi::assemble(None)?,
            package: root().join("python").canonicalize().context("find the package")?,
            target: target().canonicalize().context("find the target folder")?,
        })
    }

    /// Runs a program under each allocator, as many at once as there are cores.
    fn row(&self, name: &str) -> Result<Row> {
        let program = root().join(format!("bugs/{name}.py"));
        let text = fs::read_to_string(&program).with_context(|| format!("read {name}"))?;
        let left = Mutex::new(ALLOCATORS.iter().enumerate());
        let ended = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
                scope.spawn(|| {
                    loop {
                        let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                        let Some((at, allocator)) = next else { break };
                        let outcome = self.run(&program, &text, allocator);
                        ended.lock().unwrap_or_else(PoisonError::into_inner).push((at, outcome));
                    }
                });
            }
        });
        let mut ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        ended.sort_by_key(|(at, _)| *at);
        let outcomes = ended.into_iter().map(|(_, outcome)| outcome).collect::<Result<Vec<_>>>()?;
        // PyTorch's own allocator counts all that the program has in use; the driver's does not
        // count the memory of graphs.
        let right = outcomes.iter().find_map(|(_, right)| right.clone());
        let came_to = outcomes.into_iter().map(|(came_to, _)| came_to).collect();
        Ok(Row { name: name.to_owned(), right: right.unwrap_or_default(), came_to })
    }

    /// What the program says, under one allocator: what it came to, and what is right.
    fn run(
        &self,
        program: &Path,
        text: &str,
        allocator: &Allocator,
    ) -> Result<(String, Option<String>)> {
        let mut python = self.torch.python();
        python.arg("-B").env_remove("DRYSTONE_CONF").env_remove("PYTORCH_CUDA_ALLOC_CONF");
        let settings = [setting(text, "Settings"), allocator.setting];
        let settings: Vec<_> = settings.into_iter().filter(|one| !one.is_empty()).collect();
        python.env("PYTORCH_ALLOC_CONF", settings.join(","));
        // Of processes that share a device each run has its own.
        let shared = self.target.join(format!("bugs-{}-{}", allocator.name, std::process::id()));
        let device = setting(text, "Device").replace("FILE", &shared.to_string_lossy());
        python.env("SIMCUDA_CONF", device);
        match allocator.drystone {
            Some(Route::Compiled(options)) => {
                python.args(["-m", "drystone", "--route", "compiled"]);
                python.env("DRYSTONE_CONF", options);
                python.env("PYTHONPATH", &self.package);
                python.env("DRYSTONE_LIBRARY", self.libraries.join(crate::capi::LIBRARY));
                python.env("DRYSTONE_CACHE", self.target.join("torch-native"));
            }
            Some(Route::Preloaded) => {
                python.env("LD_PRELOAD", self.libraries.join(crate::capi::PRELOAD));
            }
            None => {}
        }
        python.arg(program.canonicalize().context("find the program")?);
        let outcome = said(python);
        let _ = fs::remove_file(&shared);
        outcome.with_context(|| format!("{}, {}", program.display(), allocator.name))
    }
}

/// A line of the comment at a program's top.
fn setting<'text>(program: &'text str, key: &str) -> &'text str {
    let line = program.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    line.unwrap_or_default()
}

/// What a program's last line says. One that a signal ended came to that.
fn said(mut python: Command) -> Result<(String, Option<String>)> {
    let output = python.current_dir(root()).output().context("cannot start Python")?;
    if output.status.code().is_none() {
        return Ok((figure::ENDS.to_owned(), None));
    }
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = printed.lines().find_map(|line| line.strip_prefix("came to: "));
    let Some((came_to, right)) = line.and_then(|line| line.split_once("; right: ")) else {
        // A row, so that the others are told too.
        eprintln!("{python:?} ended with {}:", output.status);
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        return Ok((figure::FAILS.to_owned(), None));
    };
    let right = (!right.is_empty()).then(|| right.to_owned());
    Ok((came_to.to_owned(), right))
}

#[cfg(test)]
mod tests;
