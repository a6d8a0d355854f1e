//! Any text as options: options, or one error of one line.
#![no_main]

use drystone::Options;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<Options>() {
        Ok(options) => {
            assert!(options.granule_bytes.is_power_of_two());
            assert!(options.limit_fraction.is_none_or(|f| f > 0.0 && f <= 1.0));
            assert_ne!(options.limit_bytes, Some(0));
            let keeps = options.release_threshold_bytes;
            assert!(keeps > 0 || text.contains("release_threshold") && text.contains("none"));
            assert!(options.is_shareable.is_none() || text.contains("shareable"));
        }
        Err(error) => assert!(text.contains('\n') || !error.to_string().contains('\n')),
    }
});
