//! Dry runs of programs of real frameworks: `cargo xtask frameworks`.
//!
//! Lives here: which releases, in `target/frameworks` on top of PyTorch's environment, and the
//! start of `python-sim/frameworks`, which prints the table of `docs/dry-run.md`.

use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{TORCH_VERSION, cargo, root, run, target};
use crate::torch;

/// The frameworks, and then what they import.
const PACKAGES: [&str; 44] = [
    "accelerate==1.15.0",
    "datasets==5.2.0",
    "diffusers==0.42.1",
    "lightning==2.6.6",
    "peft==0.21.2",
    "trl==1.16.0",
    "aiohappyeyeballs",
    "aiohttp",
    "aiosignal",
    "attrs",
    "certifi",
    "charset-normalizer",
    "click",
    "dill",
    "frozenlist",
    "hf-xet",
    "httpcore",
    "httpx",
    "importlib-metadata",
    "lightning-utilities",
    "markdown-it-py",
    "mdurl",
    "multidict",
    "multiprocess",
    "pandas",
    "propcache",
    "psutil",
    "pyarrow",
    "pygments",
    "python-dateutil",
    "pytorch-lightning",
    "pytz",
    "requests",
    "rich",
    "shellingham",
    "six",
    "sniffio",
    "torchmetrics",
    "typer",
    "tzdata",
    "urllib3",
    "xxhash",
    "yarl",
    "zipp",
];

/// Prints the table.
pub fn frameworks() -> Result<()> {
    let torch = torch::set_up(TORCH_VERSION)?;
    let python = torch::on_top(&torch.python, "frameworks", &PACKAGES)?;
    cargo(&["build", "--release", "--package", "drystone-cli"])?;
    let mut programs = vec![target().join("release").canonicalize().context("find the command")?];
    programs.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    let mut table = Command::new(python);
    table.env("DRYSTONE_SIM_LIBRARIES", &torch.libraries);
    table.env("PATH", std::env::join_paths(programs)?);
    table.env("PYTHONPATH", root().join("python-sim").canonicalize().context("find it")?);
    table.arg("-B").arg(root().join("python-sim/frameworks/run.py"));
    run(table)
}
