//! What the parser takes, what it refuses, and with which words.

use super::Config;

const MIB: u64 = 1 << 20;

fn refused(text: &str) -> String {
    Config::parse(text).unwrap_err().to_string()
}

#[test]
fn the_empty_text_means_defaults() {
    for text in ["", "  ", ","] {
        let parsed = Config::parse(text);
        assert_eq!(parsed.is_ok(), text != ",", "{text:?}");
        if let Ok(config) = parsed {
            assert_eq!(config, Config::default());
        }
    }
}

#[test]
fn every_modelled_key_lands_in_its_field() {
    let config = Config::parse(
        " max_split_size_mb : 128 , max_non_split_rounding_mb:64,garbage_collection_threshold:0.8,\
         per_process_memory_fraction:0.5,expandable_segments:True,large_segment_size_mb:32,",
    )
    .unwrap();
    let expected = Config {
        max_split_bytes: 128 * MIB,
        max_non_split_rounding_bytes: 64 * MIB,
        gc_threshold: 0.8,
        memory_fraction: 0.5,
        expandable_segments: true,
        large_segment_bytes: 32 * MIB,
        ..Config::default()
    };
    assert_eq!(config, expected);
}

#[test]
fn one_division_is_for_all_intervals() {
    let config = Config::parse("roundup_power2_divisions:8").unwrap();
    assert_eq!(config.roundup_divisions, [8; 16]);
}

#[test]
fn a_division_list_fills_below_its_first_and_above_its_last_key() {
    let config = Config::parse("roundup_power2_divisions:[4:1,16:2,>:8]").unwrap();
    // 1, 2 and 4 MiB take the first value, 8 MiB was left out, 16 MiB has its own, > the rest.
    let mut expected = [8; 16];
    expected[..5].copy_from_slice(&[1, 1, 1, 0, 2]);
    assert_eq!(config.roundup_divisions, expected);
    let config = Config::parse("roundup_power2_divisions:[65536:4],expandable_segments:True");
    assert_eq!(config.unwrap().roundup_divisions, [4; 16]);
}

#[test]
fn what_no_replay_shows_changes_nothing_and_is_checked() {
    let text = "backend:native,pinned_num_register_threads:4,release_lock_on_cudamalloc:True,\
                pinned_reserve_segment_size_mb:1";
    assert_eq!(Config::parse(text), Ok(Config::default()));
    assert!(refused("release_lock_on_hipmalloc:1").contains("give True or False"));
}

#[test]
fn limits_are_held_against_the_segment_size_wherever_it_stands() {
    for key in ["max_split_size_mb", "max_non_split_rounding_mb"] {
        assert!(Config::parse(&format!("large_segment_size_mb:12,{key}:12")).is_ok());
        assert!(Config::parse(&format!("{key}:12,large_segment_size_mb:12")).is_ok());
        assert!(Config::parse(&format!("{key}:32,large_segment_size_mb:64")).is_err());
    }
    let slack = |text| Config::parse(text).unwrap().max_non_split_rounding_bytes;
    assert_eq!(slack("large_segment_size_mb:12"), 12 * MIB);
    assert_eq!(slack("max_non_split_rounding_mb:64,large_segment_size_mb:12"), 64 * MIB);
}

#[test]
fn unknown_keys_are_answered_with_the_valid_ones() {
    let message = refused("max_split_size:20");
    assert!(message.starts_with("unknown key `max_split_size`; valid keys: backend, max_split"));
    assert!(message.ends_with("pinned_use_hip_host_register"), "{message}");
}

#[test]
fn what_is_not_modelled_says_why() {
    assert_eq!(
        refused("throw_on_cudamalloc_oom:True"),
        "`throw_on_cudamalloc_oom` is not modelled: it came with PyTorch 2.12 and the model is of \
         2.11"
    );
    assert!(refused("backend:cudaMallocAsync").contains("the driver's allocator"));
}

#[test]
fn bad_values_say_what_would_be_right() {
    for (text, part) in [
        ("max_split_size_mb:19", "give a whole number of MiB, 20 or more"),
        ("max_split_size_mb:20x", "bad value `20x` of `max_split_size_mb`"),
        ("large_segment_size_mb:10", "11 or more"),
        ("garbage_collection_threshold:1.0", "above 0 and below 1"),
        ("garbage_collection_threshold:nan", "above 0 and below 1"),
        ("per_process_memory_fraction:1.5", "from 0 to 1"),
        ("expandable_segments:true", "give True or False"),
        ("roundup_power2_divisions:3", "a power of two"),
        ("roundup_power2_divisions:0", "a power of two"),
        ("roundup_power2_divisions:[3:4]", "sizes that are powers of two"),
        ("backend:other", "give native"),
        ("pinned_num_register_threads:3", "a power of two up to 128"),
        ("pinned_reserve_segment_size_mb:0", "1 or more"),
        ("pinned_num_register_threads:", "bad value ``"),
        ("expandable_segments", "a key and its value but found `expandable_segments`"),
        ("expandable_segments:True expandable_segments:True", "give True or False"),
        ("roundup_power2_divisions:[4:1", "a list that ends in ]"),
        ("roundup_power2_divisions:[4]", "a key and its value but found `4`"),
        ("[", "a key and its value but found `[`"),
    ] {
        let message = refused(text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn huge_sizes_saturate() {
    let config = Config::parse("max_split_size_mb:18446744073709551615").unwrap();
    assert!(config.max_split_bytes > 1 << 60);
}
