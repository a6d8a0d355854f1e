//! Options as text: `key:value,key:value`, as in the environment variable `DRYSTONE_CONF`.
//!
//! An unknown key or a bad value is an error that lists what is valid; nothing is ignored.

use std::str::FromStr;
use std::time::Duration;

use drystone_core::{CrossStream, Prefer};
use drystone_driver::sizes;

use super::{Backend, Options};

/// Environment variable that [`Options::from_env`] reads.
pub const ENVIRONMENT: &str = "DRYSTONE_CONF";

const MIB: u64 = 1 << 20;

/// Text that is not a list of options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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

const KEYS: [Key; 13] = [
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
            options.limit_bytes = Some(size(value)?);
            Some(())
        },
    },
    Key {
        name: "limit_fraction",
        takes: "a number above 0 and at most 1",
        set: |options, value| {
            let fraction = sizes::parse_number(value)?;
            options.limit_fraction = Some(fraction).filter(|&f| f > 0.0 && f <= 1.0);
            options.limit_fraction.map(|_| ())
        },
    },
    Key {
        name: "prefer",
        takes: "memory, balanced or speed",
        set: |options, value| {
            options.prefer = match value {
                "memory" => Prefer::Memory,
                "balanced" => Prefer::Balanced,
                "speed" => Prefer::Speed,
                _ => return None,
            };
            Some(())
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
        name: "remap",
        takes: "on or off",
        set: |options, value| {
            options.remaps = match value {
                "on" => true,
                "off" => false,
                _ => return None,
            };
            Some(())
        },
    },
    Key {
        name: "granule",
        takes: "a power of two from 2MiB to 1GiB",
        set: |options, value| {
            let bytes = size(value)?;
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
                _ => size(value)?,
            };
            Some(())
        },
    },
    Key {
        name: "shareable",
        takes: "auto, true or false",
        set: |options, value| {
            options.is_shareable = match value {
                "auto" => None,
                _ => Some(value.parse().ok()?),
            };
            Some(())
        },
    },
    Key {
        name: "neighbours",
        takes: "on, off or how many milliseconds they are waited for, such as 200ms",
        set: |options, value| {
            options.neighbours = match value {
                "on" => Options::default().neighbours,
                "off" => None,
                _ => Some(Duration::from_millis(value.strip_suffix("ms")?.parse().ok()?)),
            };
            Some(())
        },
    },
    Key {
        name: "idle",
        takes: "off or a number of seconds of at least 1",
        set: |options, value| {
            options.idle = match value {
                "off" => None,
                _ => Some(Duration::from_secs(value.parse().ok().filter(|&s: &u64| s > 0)?)),
            };
            Some(())
        },
    },
    Key {
        name: "host_floor",
        takes: "auto, off or a size such as 8GiB",
        set: |options, value| {
            options.host_floor_bytes = match value {
                "auto" => None,
                "off" => Some(0),
                _ => Some(size(value)?),
            };
            Some(())
        },
    },
    Key {
        name: "mem_get_info",
        takes: "device or neighbours",
        set: |options, value| {
            options.counts_neighbours = match value {
                "device" => false,
                "neighbours" => true,
                _ => return None,
            };
            Some(())
        },
    },
];

fn valid_keys() -> String {
    KEYS.map(|key| format!("{} ({})", key.name, key.takes)).join(", ")
}

/// A size; zero is none.
fn size(text: &str) -> Option<u64> {
    sizes::parse_size(text).ok().filter(|&bytes| bytes > 0)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let text = "backend:malloc, limit:20GiB,limit_fraction:0.5,cross_stream:passed,\
                    remap:off,granule:4MiB,release_threshold:1GiB,shareable:true";
        let options: Options = text.parse().unwrap();
        assert_eq!((options.release_threshold_bytes, options.is_shareable), (1 << 30, Some(true)));
        for (text, bytes) in [("all", u64::MAX), ("none", 0), ("512MiB", 512 * MIB)] {
            let options: Options = format!("release_threshold:{text}").parse().unwrap();
            assert_eq!(options.release_threshold_bytes, bytes, "{text}");
        }
        for (text, bytes) in [("auto", None), ("off", Some(0)), ("6GiB", Some(6 << 30))] {
            let options: Options = format!("host_floor:{text}").parse().unwrap();
            assert_eq!(options.host_floor_bytes, bytes, "{text}");
        }
        assert_eq!("backend:async".parse::<Options>().unwrap().backend, Some(Backend::Async));
        assert_eq!(options.backend, Some(Backend::Malloc));
        assert_eq!(options.limit_bytes, Some(20 << 30));
        assert_eq!(options.limit_fraction, Some(0.5));
        assert_eq!(options.cross_stream, CrossStream::Passed);
        assert!(!options.remaps && "remap:on".parse::<Options>().unwrap().remaps);
        assert_eq!(options.granule_bytes, 4 << 20);
        assert_eq!(options.limit_on(100 << 30), 20 << 30);
        assert_eq!(options.limit_on(10 << 30), 5 << 30);
        for (text, bytes) in
            [("1.5GiB", 3 << 29), ("24G", 24 << 30), ("2TB", 2_000_000_000_000), ("7", 7)]
        {
            let options: Options = format!("limit:{text}").parse().unwrap();
            assert_eq!(options.limit_bytes, Some(bytes), "{text}");
        }
        assert_eq!("".parse::<Options>(), Ok(Options::default()));
        assert_eq!("backend:auto".parse::<Options>(), Ok(Options::default()));
    }

    #[test]
    fn a_host_keeps_a_sixteenth_or_8_gib_of_memory_that_is_its_own() {
        let device = |total_bytes| {
            let mut info = drystone_driver::DeviceInfo::new(0, total_bytes, 2 << 20);
            info.is_integrated = true;
            info
        };
        let usual = Options::default();
        assert_eq!(usual.floor_on(&device(64 << 30)), 4 << 30);
        assert_eq!(usual.floor_on(&device(256 << 30)), 8 << 30);
        let own = usual.with_host_floor_bytes(Some(3 << 30));
        assert_eq!(own.floor_on(&device(64 << 30)), 3 << 30);
        let discrete = drystone_driver::DeviceInfo::new(0, 64 << 30, 2 << 20);
        assert_eq!(own.floor_on(&discrete), 0);
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
        for bad in [
            "host_floor:0",
            "host_floor:low",
            "release_threshold:0",
            "release_threshold:some",
            "shareable:yes",
        ] {
            assert!(error(bad).contains("does not take"), "{bad}");
        }
    }
}
