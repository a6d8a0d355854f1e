//! Options: parsed once, from a builder's fields or from `DRYSTONE_CONF=key:value,...`.
//!
//! An unknown key or a bad value is an error that lists what is valid; nothing is ignored.

use std::str::FromStr;

use drystone_core::CrossStream;
use drystone_driver::MemoryPoolConfig;

use crate::error::BuildError;

/// Environment variable that [`Options::from_env`] reads.
pub const ENVIRONMENT: &str = "DRYSTONE_CONF";

const MIB: u64 = 1 << 20;

/// Where memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Virtual memory: physical granules mapped into reserved addresses.
    Vmm,
    /// Plain allocations of the driver (`cudaMalloc`).
    Malloc,
    /// Memory pools of the driver's (`cudaMallocAsync`), which do the caching themselves.
    Async,
}

/// How an allocator behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Where memory comes from; `None` takes virtual memory where the device has it, else plain
    /// allocations.
    pub backend: Option<Backend>,
    /// Reserved memory never passes this many bytes.
    pub limit_bytes: Option<u64>,
    /// Reserved memory never passes this fraction of the device's memory: above 0, at most 1.
    pub limit_fraction: Option<f64>,
    /// When a free block serves another stream than its own.
    pub cross_stream: CrossStream,
    /// Size of a granule in bytes: a power of two, at least the device's granularity (2 MiB).
    /// Smaller granules hold less unused memory, larger ones cost fewer driver calls. Large blocks
    /// of programs that hold much get several at once, as many as fit into 8 MiB.
    pub granule_bytes: u64,
    /// Backend `async`: how much unused memory the driver keeps when the program synchronises a
    /// stream, an event or the device. `u64::MAX` keeps all until it is trimmed.
    pub release_threshold_bytes: u64,
    /// Backend `async`: memory pools can be given to other processes.
    pub is_shareable: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: None,
            limit_bytes: None,
            limit_fraction: None,
            cross_stream: CrossStream::Wait,
            granule_bytes: 2 * MIB,
            release_threshold_bytes: u64::MAX,
            is_shareable: false,
        }
    }
}

/// Text that is not a list of options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A piece without a colon.
    #[error("`{piece}` is not key:value; options look like `backend:vmm,limit:20GiB`")]
    NotAPair {
        /// The piece.
        piece: String,
    },
    /// A key there is not.
    #[error("unknown option `{key}`; valid options are {}", valid_keys())]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// A key given twice.
    #[error("option `{key}` is given twice")]
    Repeated {
        /// The key.
        key: String,
    },
    /// A value the key does not take.
    #[error("option `{key}` does not take `{value}`; it takes {takes}")]
    BadValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
}

/// What a key is called, what values it takes, and how a value is set.
struct Key {
    name: &'static str,
    takes: &'static str,
    set: fn(&mut Options, &str) -> Option<()>,
}

const KEYS: [Key; 7] = [
    Key {
        name: "backend",
        takes: "auto, vmm, malloc or async",
        set: |options, value| {
            options.backend = match value {
                "auto" => None,
                "vmm" => Some(Backend::Vmm),
                "malloc" => Some(Backend::Malloc),
                "async" => Some(Backend::Async),
                _ => return None,
            };
            Some(())
        },
    },
    Key {
        name: "limit",
        takes: "a size such as 20GiB, 1.5G or a number of bytes",
        set: |options, value| {
            options.limit_bytes = Some(parse_bytes(value)?);
            Some(())
        },
    },
    Key {
        name: "limit_fraction",
        takes: "a number above 0 and at most 1",
        set: |options, value| {
            let fraction: f64 = value.parse().ok()?;
            options.limit_fraction = Some(fraction).filter(|&f| f > 0.0 && f <= 1.0);
            options.limit_fraction.map(|_| ())
        },
    },
    Key {
        name: "cross_stream",
        takes: "never, passed or wait",
        set: |options, value| {
            options.cross_stream = match value {
                "never" => CrossStream::Never,
                "passed" => CrossStream::Passed,
                "wait" => CrossStream::Wait,
                _ => return None,
            };
            Some(())
        },
    },
    Key {
        name: "granule",
        takes: "a power of two from 2MiB to 1GiB",
        set: |options, value| {
            let bytes = parse_bytes(value)?;
            let is_valid = bytes.is_power_of_two() && (2 * MIB..=1024 * MIB).contains(&bytes);
            options.granule_bytes = bytes;
            is_valid.then_some(())
        },
    },
    Key {
        name: "release_threshold",
        takes: "all, none or a size such as 512MiB",
        set: |options, value| {
            options.release_threshold_bytes = match value {
                "all" => u64::MAX,
                "none" => 0,
                _ => parse_bytes(value)?,
            };
            Some(())
        },
    },
    Key {
        name: "shareable",
        takes: "true or false",
        set: |options, value| {
            options.is_shareable = value.parse().ok()?;
            Some(())
        },
    },
];

fn valid_keys() -> String {
    KEYS.map(|key| format!("{} ({})", key.name, key.takes)).join(", ")
}

/// A size: a number, then nothing, `B`, or a binary unit (`K`, `KiB`, to `T`, `TiB`). Zero is no
/// size. Parts of a byte are dropped.
fn parse_bytes(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[number.len()..] {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return None,
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return None;
    }
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(1 << shift)?,
        Err(_) => {
            let bytes = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
            (bytes < u64::MAX as f64).then_some(bytes as u64)?
        }
    };
    (bytes > 0).then_some(bytes)
}

impl FromStr for Options {
    type Err = OptionsError;

    /// Parses `key:value,key:value`. Empty text gives the defaults; spaces around pieces are free.
    fn from_str(text: &str) -> Result<Self, OptionsError> {
        let mut options = Options::default();
        let mut seen = [false; KEYS.len()];
        for piece in text.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
            let Some((key, value)) = piece.split_once(':') else {
                return Err(OptionsError::NotAPair { piece: piece.to_owned() });
            };
            let (key, value) = (key.trim(), value.trim());
            let Some(at) = KEYS.iter().position(|known| known.name == key) else {
                return Err(OptionsError::UnknownKey { key: key.to_owned() });
            };
            if std::mem::replace(&mut seen[at], true) {
                return Err(OptionsError::Repeated { key: key.to_owned() });
            }
            (KEYS[at].set)(&mut options, value).ok_or_else(|| OptionsError::BadValue {
                key: key.to_owned(),
                value: value.to_owned(),
                takes: KEYS[at].takes,
            })?;
        }
        Ok(options)
    }
}

impl Options {
    /// Options from the environment variable `DRYSTONE_CONF`; the defaults if it is not set.
    ///
    /// # Errors
    /// The text is not a list of options, or not Unicode.
    pub fn from_env() -> Result<Self, OptionsError> {
        match std::env::var_os(ENVIRONMENT) {
            None => Ok(Self::default()),
            Some(text) => text.to_string_lossy().parse(),
        }
    }

    /// Checks fields that were set without the parser.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let bad = |option, value, takes| Err(BuildError::BadOption { option, value, takes });
        if !self.granule_bytes.is_power_of_two() || self.granule_bytes > 1024 * MIB {
            return bad("granule_bytes", self.granule_bytes.to_string(), "a power of two to 1 GiB");
        }
        match self.limit_fraction {
            Some(f) if !(f > 0.0 && f <= 1.0) => {
                bad("limit_fraction", f.to_string(), "a number above 0 and at most 1")
            }
            _ => Ok(()),
        }
    }

    /// How the driver runs the memory pools of backend `async`. Freed memory serves other streams
    /// as [`cross_stream`](Self::cross_stream) says, as far as the driver has attributes for it.
    pub(crate) const fn memory_pool_config(&self) -> MemoryPoolConfig {
        let may_pass = !matches!(self.cross_stream, CrossStream::Never);
        MemoryPoolConfig {
            release_threshold_bytes: self.release_threshold_bytes,
            reuse_follows_events: may_pass,
            reuse_is_opportunistic: may_pass,
            reuse_adds_dependencies: matches!(self.cross_stream, CrossStream::Wait),
            is_exportable: self.is_shareable,
        }
    }

    /// The limit of reserved bytes on a device with this much memory.
    pub(crate) fn limit_on(&self, device_bytes: u64) -> u64 {
        let by_fraction = self.limit_fraction.map(|f| (device_bytes as f64 * f) as u64);
        self.limit_bytes.unwrap_or(u64::MAX).min(by_fraction.unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let text = "backend:malloc, limit:20GiB,limit_fraction:0.5,cross_stream:passed,granule:4MiB,\
                    release_threshold:1GiB,shareable:true";
        let options: Options = text.parse().unwrap();
        assert_eq!((options.release_threshold_bytes, options.is_shareable), (1 << 30, true));
        for (text, bytes) in [("all", u64::MAX), ("none", 0), ("512MiB", 512 * MIB)] {
            let options: Options = format!("release_threshold:{text}").parse().unwrap();
            assert_eq!(options.release_threshold_bytes, bytes, "{text}");
        }
        assert_eq!("backend:async".parse::<Options>().unwrap().backend, Some(Backend::Async));
        assert_eq!(options.backend, Some(Backend::Malloc));
        assert_eq!(options.limit_bytes, Some(20 << 30));
        assert_eq!(options.limit_fraction, Some(0.5));
        assert_eq!(options.cross_stream, CrossStream::Passed);
        assert_eq!(options.granule_bytes, 4 << 20);
        assert_eq!(options.limit_on(100 << 30), 20 << 30);
        assert_eq!(options.limit_on(10 << 30), 5 << 30);
        for (text, bytes) in [("1.5GiB", 3 << 29), ("24G", 24 << 30), ("2TiB", 2 << 40), ("7", 7)] {
            let options: Options = format!("limit:{text}").parse().unwrap();
            assert_eq!(options.limit_bytes, Some(bytes), "{text}");
        }
        assert_eq!("".parse::<Options>(), Ok(Options::default()));
        assert_eq!("backend:auto".parse::<Options>(), Ok(Options::default()));
    }

    #[test]
    fn fields_set_by_hand_are_checked_too() {
        let granule = |granule_bytes| Options { granule_bytes, ..Options::default() }.check();
        assert!(granule(3 << 20).is_err() && granule(0).is_err() && granule(4 << 20).is_ok());
        for fraction in [f64::NAN, -1.0, 0.0, 1.5] {
            let options = Options { limit_fraction: Some(fraction), ..Options::default() };
            assert!(options.check().unwrap_err().to_string().contains("limit_fraction"));
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_right() {
        let error = |text: &str| text.parse::<Options>().unwrap_err().to_string();
        assert!(error("sauce:vmm").contains("unknown option `sauce`; valid options are backend"));
        assert!(error("backend:disk").contains("it takes auto, vmm, malloc or async"));
        assert!(error("backend").contains("is not key:value"));
        assert!(error("backend:vmm,backend:vmm").contains("twice"));
        for bad in ["0", "-1", "0.1", "1.5.1GiB", "99999999999GiB", "12XiB", "", ".", "GiB"] {
            assert!(error(&format!("limit:{bad}")).contains("does not take"), "{bad}");
        }
        for bad in ["0", "1.01", "-0.5", "NaN", "inf", "half"] {
            assert!(error(&format!("limit_fraction:{bad}")).contains("does not take"), "{bad}");
        }
        for bad in ["3MiB", "1MiB", "2GiB", "0"] {
            assert!(error(&format!("granule:{bad}")).contains("does not take"), "{bad}");
        }
        for bad in ["release_threshold:0", "release_threshold:some", "shareable:yes"] {
            assert!(error(bad).contains("does not take"), "{bad}");
        }
    }
}
