//! The keys of a configuration text, what each means to the model, and why a configuration was
//! refused, in words that name the key.

/// What a key means to the model.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Meaning {
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

/// The key that two others are held against.
pub(super) const LARGE_SEGMENT: &str = "large_segment_size_mb";

/// Every key PyTorch 2.11 accepts, in the order of its documentation.
pub(super) const KEYS: [(&str, Meaning); 16] = [
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
pub(super) const LATER_KEYS: [(&str, &str); 6] = [
    ("throw_on_cudamalloc_oom", "2.12"),
    ("pinned_free_catch_all", "2.12"),
    ("pinned_max_round_threshold_mb", "2.13"),
    ("pinned_max_cached_size_mb", "2.13"),
    ("expandable_segments_reserve", "2.15"),
    ("expandable_segments_reserve_by_class", "2.15"),
];

/// The valid keys, for messages.
pub(super) fn valid_keys() -> String {
    KEYS.map(|(key, _)| key).join(", ")
}

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
