//! The keys of a configuration text, and what each means to the model.

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
