//! `demo` and `why`: what somebody in a hurry is told.

use crate::tool::{SMALL, drystone, drystone_with, file, folder, shipped};

#[test]
fn the_demo_shows_who_refuses_who_serves_and_the_price() {
    let (folder, _) = folder();
    let page = file(&folder, "page.html");
    let ran = drystone(["demo", &shipped("experts_exchange_tokens"), "--html", &page]).expect(0);
    let row = |name: &str, of: &str| {
        let mut rows = ran.stdout.lines().filter(|line| line.trim_start().starts_with(name));
        rows.find(|line| line.contains(of)).unwrap_or_else(|| panic!("{name} {of}: {ran:?}"))
    };
    assert!(row("PyTorch  ", "\u{2588}").contains("OUT OF MEMORY"));
    assert!(row("PyTorch, expandable segments", "\u{2588}").contains("OUT OF MEMORY"));
    let own = row("Drystone", "\u{2588}");
    assert!(own.ends_with("  runs"), "{own}");
    assert!(own.find('\u{2588}') < own.find('\u{2502}'), "ends before the GPU does: {own}");
    for name in ["PyTorch", "PyTorch, expandable segments", "Drystone"] {
        assert!(row(name, "driver calls").contains(" ms in "));
    }
    assert!(ran.stdout.contains("has not run on a real GPU yet"), "{ran:?}");
    assert!(std::fs::read_to_string(&page).unwrap().contains("experts_exchange_tokens"));
}

#[test]
fn the_demo_sums_up_several_programs_and_says_what_it_lacks() {
    let (_folder, small) = folder();
    let ran = drystone(["demo", &small, &small, "--capacity", "1GiB"]).expect(0);
    assert!(ran.stdout.contains("All 2 programs, each on such a GPU\n"), "{ran:?}");
    assert!(ran.stdout.contains("Drystone                      runs  2; needs "), "{ran:?}");
    let ran = drystone(["demo"]).expect(2);
    assert!(ran.complaint().contains("run this in a checkout of Drystone"), "{ran:?}");
}

/// The recorded allocator refused seven requests in the middle of memory that nobody used.
#[test]
fn why_tells_fragmentation_from_need_and_who_would_have_served() {
    let (folder, _) = folder();
    let (trace, snapshot) = (shipped("lstm_train"), file(&folder, "recorded.pickle"));
    let record = |capacity: &str| {
        let options = ["--allocator", "torch-native", "--capacity", capacity];
        drystone(["convert", &trace, &snapshot].iter().chain(&options)).expect(1);
        drystone(["why", &snapshot]).expect(0).stdout
    };
    let told = record("1.02x");
    assert!(told.contains("- Memory ran out "), "{told}");
    assert!(told.contains("This is fragmentation."), "{told}");
    assert!(told.contains("the refused request included: PyTorch runs out"), "{told}");
    assert!(told.contains("Drystone serves all of it"), "{told}");
    assert!(told.lines().count() <= 14, "{told}");
    let told = record("0.5x");
    assert!(told.contains("No allocator helps; use less."), "{told}");
    assert!(told.contains("- To change it: smaller batches"), "{told}");
}

#[test]
fn why_says_of_a_trace_what_it_can() {
    let ran = drystone_with(["why", "-"], SMALL.as_bytes()).expect(0);
    assert!(ran.stdout.contains("- No request was refused while this was recorded.\n"), "{ran:?}");
    assert!(ran.stdout.contains("- In use: 12.00 MiB at most, in 2 blocks; 8.000 MiB of it"));
    assert!(ran.stdout.contains("Replayed with ample memory, they hold: PyTorch "), "{ran:?}");
    let json = drystone_with(["why", "-", "--json"], SMALL.as_bytes()).expect(0);
    assert!(json.json()["traces"][0]["refused"].is_null());
    let empty = r#"[{"device": 0, "address": 2097152, "total_size": 2097152, "blocks":
        [{"size": 2097152, "state": "inactive"}]}]"#;
    let ran = drystone_with(["why", "-"], empty.as_bytes()).expect(0);
    assert!(ran.stdout.contains("No history was recorded"), "{ran:?}");
}
