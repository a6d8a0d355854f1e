//! Why a configuration was refused, in words that name the key.

use super::keys::{LATER_KEYS, valid_keys};

/// Why a configuration was refused.
#[expect(missing_docs, reason = "the text of an error says what each of its parts is")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No version of PyTorch up to 2.11 has this key.
    #[error("unknown key `{key}`; valid keys: {}", valid_keys())]
    UnknownKey { key: String },
    /// The key exists, but the model does not cover what it asks for.
    #[error("`{key}` is not modelled: {reason}")]
    NotModelled { key: String, reason: String },
    /// The value is none PyTorch takes.
    #[error("bad value `{value}` of `{key}`: give {expected}")]
    BadValue { key: String, value: String, expected: String },
    /// The text is not a list of `key:value`.
    #[error("expected {expected} but found {found}; the form is key:value,key:[a:b,c:d]")]
    Syntax { expected: &'static str, found: String },
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
