//! [`Config`]: what `PYTORCH_CUDA_ALLOC_CONF` says, in PyTorch 2.11's own syntax,
//! `key:value,key:[a:b,c:d]`; blanks mean nothing.
//!
//! Invariant: a `Config` holds only values PyTorch would accept. Unlike PyTorch, numbers must be
//! whole decimal digits (it would read `20x` as 20).

/// How many intervals `roundup_power2_divisions` has: 1 MiB to 64 GiB by powers of two.
pub(super) const INTERVALS: usize = 16;
/// One mebibyte, in bytes: the unit of every size key.
const MIB: u64 = 1 << 20;
/// The key that two others are held against.
const LARGE_SEGMENT: &str = "large_segment_size_mb";

/// Every key PyTorch 2.11 accepts, in the order of its documentation.
const KEYS: [&str; 16] = [
    "backend",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "expandable_segments",
    LARGE_SEGMENT,
    "per_process_memory_fraction",
    "release_lock_on_cudamalloc",
    "graph_capture_record_stream_reuse",
    "pinned_use_cuda_host_register",
    "pinned_use_background_threads",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "release_lock_on_hipmalloc",
    "pinned_use_hip_host_register",
];

/// Keys of later versions, refused by name so that nobody believes they were modelled.
const LATER_KEYS: [(&str, &str); 6] = [
    ("throw_on_cudamalloc_oom", "2.12"),
    ("pinned_free_catch_all", "2.12"),
    ("pinned_max_round_threshold_mb", "2.13"),
    ("pinned_max_cached_size_mb", "2.13"),
    ("expandable_segments_reserve", "2.15"),
    ("expandable_segments_reserve_by_class", "2.15"),
];

/// Why a configuration was refused, in words that name the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// The allocator's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Blocks of this size and above are not split, in bytes; `u64::MAX` means no limit.
    pub max_split_bytes: u64,
    /// How much larger than the request an unsplittable block may be, in bytes.
    pub max_non_split_rounding_bytes: u64,
    /// Segment size for requests between 1 MiB and 10 MiB, and handle size of large expandable
    /// segments, in bytes.
    pub large_segment_bytes: u64,
    /// Divisions between two powers of two, by interval from 1 MiB up; 0 and 1 mean none.
    pub roundup_divisions: [u32; INTERVALS],
    /// Part of the allowed memory above which cached blocks are collected; 0 is off.
    pub gc_threshold: f64,
    /// Part of the device's memory the process may use; 1 is no limit.
    pub memory_fraction: f64,
    /// Whether segments grow by mapping.
    pub expandable_segments: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_split_bytes: u64::MAX,
            max_non_split_rounding_bytes: 20 * MIB,
            large_segment_bytes: 20 * MIB,
            roundup_divisions: [0; INTERVALS],
            gc_threshold: 0.0,
            memory_fraction: 1.0,
            expandable_segments: false,
        }
    }
}

impl Config {
    /// Reads settings in the form of `PYTORCH_CUDA_ALLOC_CONF`. The empty text means defaults.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let mut is_in_list = false;
        let settings = text.strip_suffix(',').unwrap_or(&text).split(|c| {
            is_in_list = c == '[' || is_in_list && c != ']';
            c == ',' && !is_in_list
        });
        let pairs: Vec<_> =
            settings.filter(|_| !text.is_empty()).map(pair).collect::<Result<_, _>>()?;
        let mut config = Self::default();
        // Wherever it stands, this one comes first: two other keys are held against it, and one
        // of them takes it as its default.
        if let Some((key, value)) = pairs.iter().rfind(|(key, _)| *key == LARGE_SEGMENT) {
            config.large_segment_bytes = megabytes(key, value, 11)?;
            config.max_non_split_rounding_bytes = config.large_segment_bytes;
        }
        for (key, value) in pairs {
            config.set(key, value)?;
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let segment_mib = self.large_segment_bytes / MIB;
        match key {
            "backend" if value == "native" => {}
            "backend" if value == "cudaMallocAsync" => {
                let reason = "that is the driver's allocator, not PyTorch's";
                return Err(ConfigError(format!("`{key}:{value}` is not modelled: {reason}")));
            }
            "backend" => return Err(bad(key, value, "native")),
            "max_split_size_mb" => self.max_split_bytes = megabytes(key, value, segment_mib)?,
            "max_non_split_rounding_mb" => {
                self.max_non_split_rounding_bytes = megabytes(key, value, segment_mib)?;
            }
            "roundup_power2_divisions" => self.roundup_divisions = divisions(key, value)?,
            "garbage_collection_threshold" => {
                let part = value.parse().ok().filter(|part| *part > 0.0 && *part < 1.0);
                self.gc_threshold =
                    part.ok_or_else(|| bad(key, value, "a number above 0 and below 1"))?;
            }
            "per_process_memory_fraction" => {
                let part = value.parse().ok().filter(|part| (0.0..=1.0).contains(part));
                self.memory_fraction =
                    part.ok_or_else(|| bad(key, value, "a number from 0 to 1"))?;
            }
            "expandable_segments" => self.expandable_segments = boolean(key, value)?,
            // Nothing that a replay shows depends on the others.
            LARGE_SEGMENT => {}
            "pinned_num_register_threads" => {
                let threads = number(value).filter(|it| it.is_power_of_two() && *it <= 128);
                threads.ok_or_else(|| bad(key, value, "a power of two up to 128"))?;
            }
            "pinned_reserve_segment_size_mb" => {
                megabytes(key, value, 1)?;
            }
            _ if KEYS.contains(&key) => {
                boolean(key, value)?;
            }
            _ => return Err(unknown(key)),
        }
        Ok(())
    }
}

fn pair(setting: &str) -> Result<(&str, &str), ConfigError> {
    setting.split_once(':').ok_or_else(|| {
        let form = "the form is key:value,key:[a:b,c:d]";
        ConfigError(format!("expected a key and its value but found `{setting}`; {form}"))
    })
}

/// The refusal of a key that is none of 2.11's.
fn unknown(key: &str) -> ConfigError {
    ConfigError(match LATER_KEYS.into_iter().find(|(later, _)| *later == key) {
        Some((_, version)) => format!(
            "`{key}` is not modelled: it came with PyTorch {version} and the model is of 2.11"
        ),
        None => format!("unknown key `{key}`; valid keys: {}", KEYS.join(", ")),
    })
}

fn bad(key: &str, value: &str, expected: &str) -> ConfigError {
    ConfigError(format!("bad value `{value}` of `{key}`: give {expected}"))
}

fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A size in mebibytes, at least `least` of them, as bytes.
fn megabytes(key: &str, value: &str, least: u64) -> Result<u64, ConfigError> {
    let megabytes = number(value).filter(|megabytes| *megabytes >= least);
    let expected = || bad(key, value, &format!("a whole number of MiB, {least} or more"));
    Ok(megabytes.ok_or_else(expected)?.min(u64::MAX / MIB) * MIB)
}

fn boolean(key: &str, value: &str) -> Result<bool, ConfigError> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(bad(key, value, "True or False")),
    }
}

/// One number for all intervals, or `[MiB:number,...,>:number]`.
///
/// Intervals before the first named one take its value, `>` fills those after the last named one;
/// an interval left out in between has no divisions.
fn divisions(key: &str, value: &str) -> Result<[u32; INTERVALS], ConfigError> {
    let division = |value: &str, zero_allowed: bool| {
        let parsed = number(value).and_then(|number| u32::try_from(number).ok());
        let parsed = parsed.filter(|it| it.is_power_of_two() || (*it == 0 && zero_allowed));
        parsed.ok_or_else(|| bad(key, value, "a power of two (or 0, in a list)"))
    };
    let Some(list) = value.strip_prefix('[') else {
        return Ok([division(value, false)?; INTERVALS]);
    };
    let list = list.strip_suffix(']').ok_or_else(|| bad(key, value, "a list that ends in ]"))?;
    let (mut all, mut last) = ([0; INTERVALS], None);
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (size, value) = pair(part)?;
        let value = division(value, true)?;
        if size == ">" {
            all[last.unwrap_or(0) + 1..].fill(value);
            continue;
        }
        let size = number(size).filter(|size| size.is_power_of_two());
        let size = size.ok_or_else(|| bad(key, part, "sizes that are powers of two, in MiB"))?;
        let index = (size.ilog2() as usize).min(INTERVALS - 1);
        if last.is_none() {
            all[..index].fill(value);
        }
        all[index] = value;
        last = Some(index);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
