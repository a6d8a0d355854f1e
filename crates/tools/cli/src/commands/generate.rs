//! `drystone generate`: traces of programs that are hard on allocators, made from a seed.
//!
//! Invariant: the same command writes the same bytes; the file's first line says which command.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use drystone_driver::sizes::parse_size;
use drystone_models::generators::{Extent, GENERATORS, Generator};
use drystone_trace::codec::csv;
use drystone_trace::metrics::Summary;

use super::each_file::Ended;
use crate::output::{self, Pending};
use crate::table::Table;
use crate::units::{bytes, count, round_bytes};

/// Options of `generate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which program
    #[arg(value_name = "NAME", required_unless_present = "list",
          value_parser = GENERATORS.map(|generator| generator.name))]
    name: Option<String>,

    /// Show the programs there are
    #[arg(long, conflicts_with_all = ["name", "out"])]
    list: bool,

    /// The program's random choices follow from it
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// End after so many events [default: see --list]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    events: Option<u64>,

    /// Hold at most so many requested bytes at once [default: see --list]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    live: Option<u64>,

    /// The file to write, .csv or .csv.zst; `-` is standard output, as text
    #[arg(short, long, value_name = "OUT", required_unless_present = "list")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Ended> {
    let named = args.name.as_deref().and_then(Generator::named);
    let (Some(generator), Some(out)) = (named, &args.out) else {
        output::print(&list())?;
        return Ok(Ended::Well);
    };
    let to_stdout = out == Path::new("-");
    let is_compressed = is_compressed(out)?;
    let file = if to_stdout { None } else { Some(Pending::create(out)?) };
    let extent = Extent {
        events: args.events.unwrap_or(generator.extent.events),
        live_bytes: args.live.unwrap_or(generator.extent.live_bytes),
    };
    let trace = generator.trace(args.seed, extent).with_context(|| generator.name)?;
    let mut content = Vec::new();
    let written = match is_compressed {
        true => csv::write_zst(&trace, &mut content),
        false => csv::write(&trace, &mut content),
    };
    written.with_context(|| format!("{}: cannot encode", out.display()))?;
    let Some(file) = file else {
        output::print_bytes(&content)?;
        return Ok(Ended::Well);
    };
    file.finish(&content)?;
    let summary = Summary::of(&trace);
    output::print(&format!(
        "{}: seed {}, {} events, {} requested at the peak\n",
        out.display(),
        args.seed,
        count(summary.events),
        bytes(summary.peak_requested_bytes),
    ))?;
    Ok(Ended::Well)
}

/// Whether the file's ending asks for compression; an error where it names no trace.
fn is_compressed(out: &Path) -> Result<bool> {
    let name = out.to_string_lossy().to_ascii_lowercase();
    let is_compressed = name.ends_with(".csv.zst");
    anyhow::ensure!(
        is_compressed || name.ends_with(".csv") || name == "-",
        "{}: a trace ends in .csv or .csv.zst",
        out.display()
    );
    Ok(is_compressed)
}

fn list() -> String {
    let mut table = Table::new(&["program", "events", "live at most"]);
    let mut what = vec!["  what it does".to_owned()];
    for generator in &GENERATORS {
        let Extent { events, live_bytes } = generator.extent;
        table.row(vec![generator.name.to_owned(), count(events), round_bytes(live_bytes)]);
        what.push(format!("  {}", generator.what));
    }
    let rows = table.render("");
    rows.lines().zip(what).map(|(row, what)| format!("{row}{what}\n")).collect()
}
