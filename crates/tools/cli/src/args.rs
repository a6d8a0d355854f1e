//! The options that several subcommands share.

use std::path::{Path, PathBuf};

use drystone_driver::sizes::parse_size;
use drystone_models::Gaps;
use drystone_sim::{CostTable, Measured};

/// Physical memory of the simulated device where `--capacity` is not given: nothing runs out.
pub const AMPLE_BYTES: u64 = 1 << 40;

/// Capacities are rounded up to this: the driver's granularity.
pub const GRANULE_BYTES: u64 = 2 << 20;

/// Which files, and how many at a time.
#[derive(Debug, clap::Args)]
pub struct Files {
    /// Traces or snapshots: .csv, .csv.zst, .pickle, .json, RMM logs; `-` is standard input,
    /// and a pattern such as `'runs/**/*.pickle'` stands for the files it matches
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Files worked on at a time, of `sweep` replays [default: one per core]. Processor times are
    /// those of one thread, but busy neighbours share caches: use 1 where they matter
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub jobs: Option<u16>,
}

impl Files {
    /// How many files to work on at a time.
    pub fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.jobs.map_or_else(cores, usize::from)
    }
}

/// The simulated device.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct DeviceArgs {
    /// Physical memory of the device: bytes, a size such as 24GiB, or a factor such as 1.02x of
    /// the trace's peak with what graphs keep [default: that of a measured device, else 1TiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_capacity)]
    pub capacity: Option<Capacity>,

    #[command(flatten)]
    pub quirks: Quirks,
}

/// How time passes in a replay.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Time {
    /// Prices of driver calls
    #[arg(long, value_enum, value_name = "TABLE", default_value_t, conflicts_with = "device")]
    pub costs: Costs,

    #[command(flatten)]
    pub profile: Profile,

    /// Whether each block is used by a kernel that takes time, and calls take time too. Events are
    /// late then, so memory of other streams is reused later; off: the clock follows the trace
    #[arg(long, value_enum, value_name = "ON|OFF", default_value_t)]
    pub kernels: Kernels,

    /// What becomes of the times at which the program was idle when recorded, where kernels are
    /// modelled
    #[arg(long, value_enum, value_name = "KEEP|SHORTEN", default_value_t)]
    pub gaps: GapsArg,
}

/// A device as it was measured.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Profile {
    /// The device as `cargo xtask gpu` measured it, in its results.json: memory, prices of driver
    /// calls, limits. What was not measured is as without
    #[arg(long, value_name = "RESULTS", value_parser = parse_device)]
    pub device: Option<&'static Measured>,
}

/// Whether kernels are modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Kernels {
    /// Device and host have clocks of their own
    #[default]
    On,
    /// Nothing takes time but the trace
    Off,
}

/// What becomes of idle times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GapsArg {
    /// They last as long as in the trace: work of other streams is over then, as it was
    #[default]
    Keep,
    /// They are as short as any other gap: the device is never idle
    Shorten,
}

impl From<GapsArg> for Gaps {
    fn from(gaps: GapsArg) -> Self {
        match gaps {
            GapsArg::Keep => Self::Kept,
            GapsArg::Shorten => Self::Shortened,
        }
    }
}

/// What a driver call costs: published figures differ, and a conclusion should hold under all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Costs {
    /// kvcached's measurements of an A100-80G: 193 us to create 2 MiB
    #[default]
    A100,
    /// The vAttention paper's: 29 us
    Vattention,
    /// kvcached's of a card of 25 GB: 7.6 us
    Small,
    /// Calls cost nothing, so that the makespan tells of waiting alone
    Free,
}

impl Costs {
    /// Every price, with its source.
    pub fn table(self) -> CostTable {
        match self {
            Self::A100 => CostTable::a100(),
            Self::Vattention => CostTable::vattention(),
            Self::Small => CostTable::small(),
            Self::Free => CostTable::free(),
        }
    }
}

/// What the device does that its size and its prices do not tell.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Quirks {
    /// Microseconds from the end of the work before an event until the event is ready [default: 20
    /// where kernels are modelled, else 0]
    #[arg(long, value_name = "US", value_parser = parse_us, allow_negative_numbers = true)]
    pub event_latency_us: Option<f64>,

    /// Memory beside the capacity that the device says it has, and does not give, as under a limit
    /// of MPS
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub withheld: Option<u64>,
}

/// Where results go beside the table on standard output.
#[derive(Debug, clap::Args)]
pub struct Outputs {
    /// Print JSON in place of the table
    #[arg(long)]
    pub json: bool,

    /// Write one self-contained HTML page with charts and address maps
    #[arg(long, value_name = "OUT")]
    pub html: Option<PathBuf>,

    /// Write the memory charts as SVG
    #[arg(long, value_name = "OUT")]
    pub svg: Option<PathBuf>,
}

/// The value of `--capacity`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// So many bytes.
    Bytes(u64),
    /// So many times what the trace needs: its peak, with what graphs keep.
    Factor(f64),
}

impl Capacity {
    /// Bytes of device memory for a trace, whole granules.
    pub fn resolve(self, needed_bytes: u64) -> u64 {
        let bytes = match self {
            Capacity::Bytes(bytes) => bytes,
            Capacity::Factor(factor) => (needed_bytes as f64 * factor) as u64,
        };
        bytes.checked_next_multiple_of(GRANULE_BYTES).unwrap_or(u64::MAX - GRANULE_BYTES + 1)
    }
}

/// Reads a size or a factor.
pub fn parse_capacity(text: &str) -> Result<Capacity, String> {
    if let Some(factor) = text.strip_suffix(['x', 'X']) {
        let factor: f64 = factor.parse().map_err(|_| format!("'{text}' is not a factor"))?;
        if !(factor.is_finite() && factor > 0.0) {
            return Err("a factor is above zero".into());
        }
        return Ok(Capacity::Factor(factor));
    }
    match parse_size(text).map_err(|error| error.to_string())? {
        0 => Err("a device has more than zero bytes".into()),
        bytes => Ok(Capacity::Bytes(bytes)),
    }
}

/// Reads results, which are kept as long as the process: every replay looks at them.
fn parse_device(text: &str) -> Result<&'static Measured, String> {
    let measured = Measured::read(Path::new(text)).map_err(|error| error.to_string())?;
    Ok(Box::leak(Box::new(measured)))
}

fn parse_us(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("'{text}' is not a number"))?;
    if (0.0..=1e9).contains(&value) {
        Ok(value)
    } else {
        Err("must be 0 to 1e9 microseconds".into())
    }
}

#[cfg(test)]
mod tests {
    use super::{Capacity, parse_capacity, parse_us};

    #[test]
    fn capacity_is_a_size_or_a_factor_in_whole_granules() {
        assert_eq!(parse_capacity("24GiB"), Ok(Capacity::Bytes(24 << 30)));
        assert_eq!(parse_capacity("1.02x"), Ok(Capacity::Factor(1.02)));
        for bad in ["0", "0x", "-1x", "nanx", "x", "infx", "12 parsecs"] {
            assert!(parse_capacity(bad).is_err(), "{bad}");
        }
        assert_eq!(Capacity::Bytes(1).resolve(0), 2 << 20);
        assert_eq!(Capacity::Factor(1.5).resolve(2 << 20), 4 << 20);
        assert_eq!(Capacity::Bytes(u64::MAX).resolve(0) % (2 << 20), 0);
    }

    #[test]
    fn latency_is_a_sane_number() {
        assert_eq!(parse_us("12.5"), Ok(12.5));
        for bad in ["-1", "NaN", "inf", "soon", "1e10"] {
            assert!(parse_us(bad).is_err(), "{bad}");
        }
    }
}
