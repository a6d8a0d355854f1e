//! Why a configuration was refused, in words that name the key.

use super::keys::{LATER_KEYS, valid_keys};

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

/// The refusal of a key that is none of 2.11's.
pub(super) fn unknown(key: &str) -> ConfigError {
    match LATER_KEYS.into_iter().find(|(later, _)| *later == key) {
        Some((key, version)) => ConfigError::NotModelled {
            key: key.to_owned(),
            reason: format!("it came with PyTorch {version} and the model is of 2.11"),
        },
        None => ConfigError::UnknownKey { key: key.to_owned() },
    }
}

/// The refusal of a value.
pub(super) fn bad(key: &str, value: &str, expected: String) -> ConfigError {
    ConfigError::BadValue { key: key.to_owned(), value: value.to_owned(), expected }
}
