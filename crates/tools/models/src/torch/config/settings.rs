//! [`Config`]: what `PYTORCH_CUDA_ALLOC_CONF` says, key by key.

use super::keys::{ConfigError, KEYS, LARGE_SEGMENT, Meaning, bad, unknown};
use super::tokens::{Tokens, tokens};
use super::values::{INTERVALS, MIB, boolean, divisions, fraction, megabytes, number};

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
