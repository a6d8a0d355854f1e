//! Public reports under each allocator: `cargo xtask bugs`, of memory held and requests refused,
//! and `cargo xtask matrix`, of what breaks with mapped memory.
//!
//! Lives here: the allocators, and the runs of a folder's programs, each in a process of its own on
//! the device that its comment names. A page holds what each came to, and is the only place that
//! does: a figure of Drystone's that is worse than there is an error, and so is any other that
//! differs. `--write` writes what was found into the page.

mod figure;
mod page;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{TORCH_VERSION, root, target};
use crate::suite::in_parallel;
use crate::torch::{self, TorchVenv};
use figure::{Change, change};
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
    Allocator { name: "expandable", setting: "expandable_segments:True", drystone: None };
const ASYNC: Allocator = Allocator { name: "cudaMallocAsync", setting: POOLS, drystone: None };
const COMPILED: Allocator =
    Allocator { name: "Drystone", setting: "", drystone: Some(Route::Package("compiled", "")) };
const MEMORY: Allocator = Allocator {
    name: "prefer:memory",
    setting: "",
    drystone: Some(Route::Package("compiled", "prefer:memory")),
};
const PLUG_IN: Allocator =
    Allocator { name: "plug-in", setting: "", drystone: Some(Route::Package("plugin", "")) };
const PRELOADED: Allocator =
    Allocator { name: "preloaded", setting: POOLS, drystone: Some(Route::Preloaded) };
const POOLS: &str = "backend:cudaMallocAsync";

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

/// What every run needs.
struct Bench {
    study: Study,
    torch: TorchVenv,
    libraries: PathBuf,
    package: PathBuf,
    target: PathBuf,
}

/// Runs all programs, or those that are named, prints their rows, and holds them against the page,
/// or writes them into it.
pub fn bugs(study: Study, args: &Args) -> Result<()> {
    let (file, command) = (study.page, study.folder);
    let text = fs::read_to_string(root().join(file)).context("read the page")?;
    let mut page = Page::read(&text)?;
    if let Some(name) = args.names.iter().find(|name| page.row(name).is_none()) {
        bail!("{file} has no program {name}; it has {}", page.names().join(", "));
    }
    let bench = Bench::set_up(study)?;
    let mut found = Vec::new();
    println!("{}", page::head(study.allocators.map(|allocator| allocator.name)));
    for name in page.names() {
        if !args.names.is_empty() && !args.names.contains(&name) {
            continue;
        }
        let now = bench.row(&name)?;
        println!("{now}");
        if let Some(before) = page.row(&name) {
            found.extend(differences(&study, before, &now));
        }
        page.put(now);
    }
    found.iter().for_each(|difference| eprintln!("{difference}"));
    if args.write {
        return fs::write(root().join(file), page.text()).context("write the page");
    }
    let wrong = found.iter().filter(|difference| difference.is_error).count();
    if wrong > 0 {
        bail!(
            "{wrong} figures are not those of {file}; if they are to be: \
             cargo xtask {command} --write"
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
fn differences(study: &Study, page: &Row, now: &Row) -> Vec<Difference> {
    let mut found = Vec::new();
    if page.right != now.right {
        let text = format!("{}: right is {}, by the page {}", now.name, now.right, page.right);
        found.push(Difference { text, is_error: true });
    }
    for ((allocator, before), after) in study.allocators.iter().zip(&page.came_to).zip(&now.came_to)
    {
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
    fn set_up(study: Study) -> Result<Self> {
        let mut torch = torch::set_up(TORCH_VERSION)?;
        if let Ok(text) = fs::read_to_string(root().join(study.folder).join("packages.txt")) {
            torch.python = torch::on_top(&torch.python, study.folder, text.trim())?;
        }
        Ok(Self {
            study,
            torch,
            libraries: crate::capi::assemble(None)?,
            package: root().join("python").canonicalize().context("find the package")?,
            target: target().canonicalize().context("find the target folder")?,
        })
    }

    /// Runs a program under each allocator, as many at once as there are cores.
    fn row(&self, name: &str) -> Result<Row> {
        let program = root().join(self.study.folder).join(format!("{name}.py"));
        let text = fs::read_to_string(&program).with_context(|| format!("read {name}"))?;
        let allocators = self.study.allocators.iter().collect();
        let outcomes = in_parallel(allocators, |one| self.run(&program, &text, one));
        let outcomes = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
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
        let shared = self.target.join(format!("report-{}-{}", allocator.name, std::process::id()));
        let device = setting(text, "Device").replace("FILE", &shared.to_string_lossy());
        python.env("SIMCUDA_CONF", device);
        // What all programs share is in one folder.
        let mut paths = vec![root().join(BUGS.folder).canonicalize().context("find it")?];
        match allocator.drystone {
            Some(Route::Package(route, options)) => {
                python.args(["-m", "drystone", "--route", route]);
                python.env("DRYSTONE_CONF", options);
                paths.push(self.package.clone());
                python.env("DRYSTONE_LIBRARY", self.libraries.join(crate::capi::LIBRARY));
                python.env("DRYSTONE_CACHE", self.target.join("torch-native"));
            }
            Some(Route::Preloaded) => {
                python.env("LD_PRELOAD", self.libraries.join(crate::capi::PRELOAD));
            }
            None => {}
        }
        python.env("PYTHONPATH", std::env::join_paths(paths).context("name the folders")?);
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
