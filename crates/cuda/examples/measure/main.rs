//! Measures what the driver's calls cost on a device, and prints tables for
//! `docs/evidence/measurements.md`.
//!
//!     measure [--device N] [--repeats N] [--mappings N] [--json]
//!
//! `--json` prints a row of the tables on each line instead, as `cargo xtask gpu` keeps them.
//! `--mappings` is where the search for the limit of mappings ends; it takes some 100 us for each.
//! On a simulated device the figures mean nothing, and the program says so.
//!
//! Lives here: options and headings. `bench` times calls, idle and beside a kernel; `costs` lists
//! them; `questions` answers what a single figure does not.

mod bench;
mod costs;
mod questions;

use std::error::Error;
use std::process::{Command, ExitCode};

use bench::Bench;
use drystone_cuda::device_count;

/// Any failure ends the program, with the driver's own words.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

struct Arguments {
    device: u32,
    repeats: usize,
    mappings: u64,
    is_json: bool,
}

fn arguments() -> Result<Arguments> {
    let mut arguments = Arguments { device: 0, repeats: 50, mappings: 20_000, is_json: false };
    let mut given = std::env::args().skip(1);
    while let Some(option) = given.next() {
        if option == "--json" {
            arguments.is_json = true;
            continue;
        }
        let value = given.next().ok_or_else(|| format!("{option} needs a number"))?;
        match option.as_str() {
            "--device" => arguments.device = value.parse()?,
            "--repeats" => arguments.repeats = value.parse::<usize>()?.max(1),
            "--mappings" => arguments.mappings = value.parse()?,
            _ => return Err(format!("{option} is no option of this program").into()),
        }
    }
    Ok(arguments)
}

/// The version of the kernel's module, where the system says it.
fn module_version() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let is_version = |word: &&str| word.contains('.') && word.starts_with(char::is_numeric);
    text.split_whitespace().find(is_version).unwrap_or("of unknown version").to_owned()
}

fn today() -> Result<String> {
    let output = Command::new("date").arg("+%F").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn run() -> Result {
    let arguments = arguments()?;
    // Asked first: without a driver cudarc panics, and this says what is missing.
    if device_count()? <= arguments.device {
        return Err(format!("there is no device {}", arguments.device).into());
    }
    let bench = Bench::open(arguments.device, arguments.repeats)?;
    if arguments.is_json {
        costs::tell(&bench)?;
        return questions::print(&bench, arguments.mappings, true);
    }
    let (name, cuda) = (bench.gpu.name()?, bench.gpu.cuda_version()?);
    println!("### What calls cost: {name}\n");
    println!("CUDA {cuda}, driver {}, {}; `cargo xtask gpu`.", module_version(), today()?);
    if name.contains("Simulated") {
        println!("\n**No real device: the figures below say nothing of any GPU.**");
    }
    println!(
        "\nMedian and worst of {} calls in microseconds, on an idle device and while a kernel of \
         {} ms runs on another stream: a call that waits for it takes nearly as long.\n",
        bench.repeats,
        bench::KERNEL_MS
    );
    costs::print(&bench)?;
    println!();
    questions::print(&bench, arguments.mappings, false)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure: {error}");
            ExitCode::FAILURE
        }
    }
}
