//! [`Config`]: what `PYTORCH_CUDA_ALLOC_CONF` says, in PyTorch 2.11's own syntax.
//!
//! Invariant: a `Config` holds only values PyTorch would accept. Unlike PyTorch, numbers must be
//! whole decimal digits (it would read `20x` as 20).

use super::rounding::INTERVALS;
use super::tokens::{Tokens, tokens};

/// One mebibyte, in bytes: the unit of every size key.
const MIB: u64 = 1 << 20;

/// What a key means to the model.
#[derive(Clone, Copy, PartialEq)]
enum Meaning {
    Backend,
    MaxSplit,
    MaxNonSplitRounding,
    LargeSegment,
    Divisions,
    GcThreshold,
    MemoryFraction,
    Expandable,
    /// Accepted and checked to be `True` or `False`; nothing a replay shows depends on it.
    IdleFlag,
    /// The same with a power of two up to 128.
    IdleThreads,
    /// The same with a positive size.
    IdleSize,
}

const LARGE_SEGMENT: &str = "large_segment_size_mb";

/// Every key PyTorch 2.11 accepts, in the order of its documentation.
const KEYS: [(&str, Meaning); 16] = [
    ("backend", Meaning::Backend),
    ("max_split_size_mb", Meaning::MaxSplit),
    ("max_non_split_rounding_mb", Meaning::MaxNonSplitRounding),
    ("roundup_power2_divisions", Meaning::Divisions),
    ("garbage_collection_threshold", Meaning::GcThreshold),
    ("expandable_segments", Meaning::Expandable),
    (LARGE_SEGMENT, Meaning::LargeSegment),
    ("per_process_memory_fraction", Meaning::MemoryFraction),
    ("release_lock_on_cudamalloc", Meaning::IdleFlag),
    ("graph_capture_record_stream_reuse", Meaning::IdleFlag),
    ("pinned_use_cuda_host_register", Meaning::IdleFlag),
    ("pinned_use_background_threads", Meaning::IdleFlag),
    ("pinned_num_register_threads", Meaning::IdleThreads),
    ("pinned_reserve_segment_size_mb", Meaning::IdleSize),
    ("release_lock_on_hipmalloc", Meaning::IdleFlag),
    ("pinned_use_hip_host_register", Meaning::IdleFlag),
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
    /// Keys that were accepted and change nothing in a replay, in the order they came.
    pub idle_keys: Vec<&'static str>,
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
            idle_keys: Vec::new(),
        }
    }
}

/// Why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No version of PyTorch up to 2.11 has this key.
    #[error("unknown key `{key}`; valid keys: {}", valid_keys())]
    UnknownKey {
        /// The key as written.
        key: String,
    },
    /// The key exists, but the model does not cover what it asks for.
    #[error("`{key}` is not modelled: {reason}")]
    NotModelled {
        /// The key as written.
        key: String,
        /// Why not.
        reason: String,
    },
    /// The value is none PyTorch takes.
    #[error("bad value `{value}` of `{key}`: give {expected}")]
    BadValue {
        /// The key as written.
        key: String,
        /// The value as written.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// The text is not a list of `key:value`.
    #[error("expected {expected} but found {found}; the form is key:value,key:[a:b,c:d]")]
    Syntax {
        /// What should stand here.
        expected: &'static str,
        /// What does.
        found: String,
    },
}

/// The valid keys, for messages.
fn valid_keys() -> String {
    KEYS.map(|(key, _)| key).join(", ")
}

impl Config {
    /// Reads settings in the form of `PYTORCH_CUDA_ALLOC_CONF`. The empty text means defaults.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        let mut tokens = tokens(text);
        // Wherever it stands, this one comes first: two other keys are held against it, and one
        // of them takes it as its default.
        if let Some(value) = tokens.value_of(LARGE_SEGMENT) {
            config.large_segment_bytes = megabytes(LARGE_SEGMENT, value, 11)?;
            config.max_non_split_rounding_bytes = config.large_segment_bytes;
        }
        while let Some(key) = tokens.next_word("a key")? {
            tokens.expect(':')?;
            config.set(key, &mut tokens)?;
            if tokens.is_at_end() {
                break;
            }
            tokens.expect(',')?;
        }
        Ok(config)
    }

    fn set(&mut self, key: &str, tokens: &mut Tokens<'_>) -> Result<(), ConfigError> {
        let Some((key, meaning)) = KEYS.into_iter().find(|(known, _)| *known == key) else {
            return Err(unknown(key));
        };
        if meaning == Meaning::Divisions {
            self.roundup_divisions = divisions(tokens)?;
            return Ok(());
        }
        let value = tokens.word("a value")?;
        let megabytes = |least: u64| megabytes(key, value, least);
        match meaning {
            Meaning::Backend if value == "native" => {}
            Meaning::Backend if value == "cudaMallocAsync" => {
                return Err(ConfigError::NotModelled {
                    key: format!("{key}:{value}"),
                    reason: "that is the driver's allocator, not PyTorch's".to_owned(),
                });
            }
            Meaning::Backend => return Err(bad(key, value, "native".to_owned())),
            Meaning::MaxSplit => self.max_split_bytes = megabytes(self.large_segment_bytes / MIB)?,
            Meaning::MaxNonSplitRounding => {
                self.max_non_split_rounding_bytes = megabytes(self.large_segment_bytes / MIB)?;
            }
            Meaning::LargeSegment => self.large_segment_bytes = megabytes(11)?,
            Meaning::GcThreshold => {
                self.gc_threshold = fraction(key, value, "a number above 0 and below 1", |part| {
                    part > 0.0 && part < 1.0
                })?;
            }
            Meaning::MemoryFraction => {
                self.memory_fraction = fraction(key, value, "a number from 0 to 1", |part| {
                    (0.0..=1.0).contains(&part)
                })?;
            }
            Meaning::Expandable => self.expandable_segments = boolean(key, value)?,
            Meaning::IdleFlag => {
                boolean(key, value)?;
                self.idle_keys.push(key);
            }
            Meaning::IdleThreads => {
                number(value)
                    .filter(|threads| threads.is_power_of_two() && *threads <= 128)
                    .ok_or_else(|| bad(key, value, "a power of two up to 128".to_owned()))?;
                self.idle_keys.push(key);
            }
            Meaning::IdleSize => {
                megabytes(1)?;
                self.idle_keys.push(key);
            }
            Meaning::Divisions => {}
        }
        Ok(())
    }
}

fn unknown(key: &str) -> ConfigError {
    match LATER_KEYS.into_iter().find(|(later, _)| *later == key) {
        Some((key, version)) => ConfigError::NotModelled {
            key: key.to_owned(),
            reason: format!("it came with PyTorch {version} and the model is of 2.11"),
        },
        None => ConfigError::UnknownKey { key: key.to_owned() },
    }
}

fn bad(key: &str, value: &str, expected: String) -> ConfigError {
    ConfigError::BadValue { key: key.to_owned(), value: value.to_owned(), expected }
}

fn number(text: &str) -> Option<u64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// A size in mebibytes, at least `least` of them, as bytes.
fn megabytes(key: &str, value: &str, least: u64) -> Result<u64, ConfigError> {
    let megabytes = number(value).filter(|megabytes| *megabytes >= least);
    let megabytes = megabytes
        .ok_or_else(|| bad(key, value, format!("a whole number of MiB, {least} or more")))?;
    Ok(megabytes.min(u64::MAX / MIB) * MIB)
}

fn fraction(
    key: &str,
    value: &str,
    expected: &str,
    is_valid: impl Fn(f64) -> bool,
) -> Result<f64, ConfigError> {
    let part = value.parse().ok().filter(|part| is_valid(*part));
    part.ok_or_else(|| bad(key, value, expected.to_owned()))
}

fn boolean(key: &str, value: &str) -> Result<bool, ConfigError> {
    match value {
        "True" => Ok(true),
        "False" => Ok(false),
        _ => Err(bad(key, value, "True or False".to_owned())),
    }
}

/// The value of `roundup_power2_divisions`: one number, or `[MiB:number,...,>:number]`.
///
/// Intervals before the first named one take its value, `>` fills those after the last named one;
/// an interval left out in between has no divisions.
fn divisions(tokens: &mut Tokens<'_>) -> Result<[u32; INTERVALS], ConfigError> {
    const KEY: &str = "roundup_power2_divisions";
    let division = |value: &str, zero_allowed: bool| {
        let parsed = number(value).and_then(|number| u32::try_from(number).ok());
        parsed
            .filter(|number| number.is_power_of_two() || (*number == 0 && zero_allowed))
            .ok_or_else(|| bad(KEY, value, "a power of two (or 0, in a list)".to_owned()))
    };
    let mut all = [0; INTERVALS];
    if !tokens.skip('[') {
        return Ok([division(tokens.word("a value")?, false)?; INTERVALS]);
    }
    let mut last = None;
    while !tokens.skip(']') {
        let size = tokens.word("a size in MiB or >")?;
        tokens.expect(':')?;
        let value = division(tokens.word("a value")?, true)?;
        if size == ">" {
            all[last.unwrap_or(0) + 1..].fill(value);
        } else {
            let size = number(size)
                .filter(|size| size.is_power_of_two())
                .ok_or_else(|| bad(KEY, size, "sizes that are powers of two, in MiB".to_owned()))?;
            let index = (size.ilog2() as usize).min(INTERVALS - 1);
            if last.is_none() {
                all[..index].fill(value);
            }
            all[index] = value;
            last = Some(index);
        }
        if !tokens.skip(',') {
            tokens.expect(']')?;
            break;
        }
    }
    Ok(all)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
