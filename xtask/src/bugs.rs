//! Public reports under each allocator: `cargo xtask bugs`, of memory held and requests refused,
//! and `cargo xtask matrix`, of what breaks with mapped memory.
//!
//! Lives here: the allocators, and the runs of a folder's programs, each in a process of its own on
//! the device that its comment names. A page holds what each came to, and is the only place that
//! does: a figure of Drystone's that is worse than there is an error, and so is any other that
//! differs. `--write` writes what was found into the page.

mod figure;
mod page;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::capi::{self, LIBRARY, PRELOAD};
use crate::command::{TORCH_VERSION, root, sh, target};
use crate::python::native_cache;
use crate::suite::in_parallel;
use crate::torch::{self, POOLS, TorchVenv};
use figure::change;
use page::{Page, Row};

/// Reports of memory held and refused.
pub const BUGS: Study = Study {
    folder: "bugs",
    page: "docs/evidence/bugs-2026.md",
    allocators: [NATIVE, EXPANDABLE, ASYNC, COMPILED, MEMORY, PRELOADED],
};
/// What breaks with mapped memory.
pub const MATRIX: Study = Study {
    folder: "matrix",
    page: "docs/evidence/matrix.md",
    allocators: [NATIVE, EXPANDABLE, ASYNC, COMPILED, PRELOADED, PLUG_IN],
};

const NATIVE: Allocator = Allocator { name: "native", setting: "", drystone: None };
const EXPANDABLE: Allocator =
    Allocator { name: "expandable", setting: "expandable_segments:True", ..NATIVE };
const ASYNC: Allocator = Allocator { name: "cudaMallocAsync", setting: POOLS, ..NATIVE };
const COMPILED: Allocator = of_package("Drystone", "compiled", "");
const MEMORY: Allocator = of_package("prefer:memory", "compiled", "prefer:memory");
const PLUG_IN: Allocator = of_package("plug-in", "plugin", "");
const PRELOADED: Allocator =
    Allocator { name: "preloaded", setting: POOLS, drystone: Some(Route::Preloaded) };

const fn of_package(name: &'static str, route: &'static str, options: &'static str) -> Allocator {
    Allocator { name, setting: "", drystone: Some(Route::Package(route, options)) }
}

/// Programs, and the page that has what they come to.
#[derive(Clone, Copy)]
pub struct Study {
    folder: &'static str,
    page: &'static str,
    /// In the order of the page's columns.
    allocators: [Allocator; 6],
}

/// What `PYTORCH_ALLOC_CONF` has beside the program's own settings, and how Drystone comes in.
#[derive(Clone, Copy)]
struct Allocator {
    name: &'static str,
    setting: &'static str,
    drystone: Option<Route>,
}

#[derive(Clone, Copy)]
enum Route {
    /// The package, by a route of its own, with options.
    Package(&'static str, &'static str),
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

/// Runs all programs, or those that are named, prints their rows, and holds them against the page,
/// or writes them into it.
pub fn bugs(study: Study, args: &Args) -> Result<()> {
    let (file, command) = (study.page, study.folder);
    let mut page = Page::read(&sh().read_file(file)?)?;
    if let Some(name) = args.names.iter().find(|name| page.row(name).is_none()) {
        let names: Vec<_> = page.rows().map(|row| row.name.as_str()).collect();
        bail!("{file} has no program {name}; it has {}", names.join(", "));
    }
    let mut torch = torch::set_up(TORCH_VERSION)?;
    if let Ok(packages) = sh().read_file(Path::new(study.folder).join("packages.txt")) {
        torch = torch.on_top(study.folder, packages.trim())?;
    }
    let bench = Bench { torch, libraries: capi::assemble(None)? };
    let mut wrong = 0;
    println!("{}", page::head(study.allocators.map(|allocator| allocator.name)));
    let is_meant = |row: &&Row| args.names.is_empty() || args.names.contains(&row.name);
    let rows: Vec<Row> = page.rows().filter(is_meant).cloned().collect();
    for before in rows {
        let now = bench.row(&study, &before.name)?;
        println!("{now}");
        for (is_error, text) in differences(&study, &before, &now) {
            wrong += usize::from(is_error);
            eprintln!("{text}");
        }
        page.put(now);
    }
    if args.write {
        return Ok(sh().write_file(file, page.text())?);
    }
    ensure!(
        wrong == 0,
        "{wrong} figures are not those of {file}; if they are to be: cargo xtask {command} --write"
    );
    Ok(())
}

/// What differs from the page, and whether that is an error. Better is none where Drystone is,
/// since its page is then merely modest; of the others the page may say nothing that is not so.
fn differences(study: &Study, page: &Row, now: &Row) -> Vec<(bool, String)> {
    let program = &now.name;
    let right = format!("error: {program}: right is {}, by the page {}", now.right, page.right);
    let right = (page.right != now.right).then_some((true, right));
    let all = study.allocators.iter().zip(page.came_to.iter().zip(&now.came_to));
    let of_allocator = |(allocator, (before, after)): (&Allocator, (&String, &String))| {
        let is_better = change(before, after)?.is_lt();
        let is_error = !is_better || allocator.drystone.is_none();
        let mark = if is_error { "error" } else { "note" };
        let (word, name) = (if is_better { "better" } else { "worse" }, allocator.name);
        let text = format!("{mark}: {program}, {name}: {after} is {word} than the page's {before}");
        Some((is_error, text))
    };
    right.into_iter().chain(all.filter_map(of_allocator)).collect()
}

/// What every run needs.
struct Bench {
    torch: TorchVenv,
    libraries: PathBuf,
}

impl Bench {
    /// Runs a program under each allocator, as many at once as there are cores.
    fn row(&self, study: &Study, name: &str) -> Result<Row> {
        let program = root().join(study.folder).join(format!("{name}.py"));
        let text = sh().read_file(&program)?;
        let outcomes = in_parallel(study.allocators.iter().collect(), |allocator| {
            // Of processes that share a device each run has its own.
            let own = format!("report-{}-{}", allocator.name, std::process::id());
            let shared = target().join(own);
            let outcome = said(self.prepared(&program, &text, allocator, &shared)?);
            sh().remove_path(shared)?;
            outcome.with_context(|| format!("{}, {}", program.display(), allocator.name))
        });
        let outcomes: Vec<(String, String)> = outcomes.into_iter().collect::<Result<_>>()?;
        // PyTorch's own allocator counts all that the program has in use; the driver's does not
        // count the memory of graphs.
        let right = outcomes.iter().map(|(_, right)| right).find(|right| !right.is_empty());
        let right = right.cloned().unwrap_or_default();
        let came_to = outcomes.into_iter().map(|(came_to, _)| came_to).collect();
        Ok(Row { name: name.to_owned(), right, came_to })
    }

    /// A program under one allocator.
    fn prepared(
        &self,
        program: &Path,
        text: &str,
        allocator: &Allocator,
        shared: &Path,
    ) -> Result<Command> {
        let mut python = Command::from(self.torch.python());
        python.env_remove("DRYSTONE_CONF").env_remove("PYTORCH_CUDA_ALLOC_CONF");
        let settings = [setting(text, "Settings"), allocator.setting];
        let settings: Vec<_> = settings.into_iter().filter(|one| !one.is_empty()).collect();
        python.env("PYTORCH_ALLOC_CONF", settings.join(","));
        let device = setting(text, "Device").replace("FILE", &shared.to_string_lossy());
        python.env("SIMCUDA_CONF", device);
        // What all programs share is in one folder.
        let mut paths = vec![root().join(BUGS.folder)];
        match allocator.drystone {
            Some(Route::Package(route, options)) => {
                python.args(["-m", "drystone", "--route", route]);
                python.env("DRYSTONE_CONF", options).envs([native_cache()]);
                python.env("DRYSTONE_LIBRARY", self.libraries.join(LIBRARY));
                paths.push(root().join("python"));
            }
            Some(Route::Preloaded) => {
                python.env("LD_PRELOAD", self.libraries.join(PRELOAD));
            }
            None => {}
        }
        python.env("PYTHONPATH", env::join_paths(paths)?).arg(program);
        Ok(python)
    }
}

/// A line of the comment at a program's top.
fn setting<'text>(program: &'text str, key: &str) -> &'text str {
    let line = program.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    line.unwrap_or_default()
}

/// What a program came to, and what is right where it says so. One that a signal ended came to
/// that.
fn said(mut python: Command) -> Result<(String, String)> {
    let output = python.output().context("cannot start Python")?;
    if output.status.code().is_none() {
        return Ok((figure::ENDS.to_owned(), String::new()));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let line = printed.lines().find_map(|line| line.strip_prefix("came to: "));
    if let Some((came_to, right)) = line.and_then(|line| line.split_once("; right: ")) {
        return Ok((came_to.to_owned(), right.to_owned()));
    }
    // A row, so that the others are told too.
    eprintln!("{python:?} ended with {}:", output.status);
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    Ok((figure::FAILS.to_owned(), String::new()))
}

#[cfg(test)]
mod tests;
