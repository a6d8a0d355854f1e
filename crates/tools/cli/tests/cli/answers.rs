//! `demo`: what somebody in a hurry is told.

use crate::tool::{drystone, folder, shipped};

#[test]
fn the_demo_shows_who_refuses_who_serves_and_the_price() {
    let trace = shipped("experts_exchange_tokens.csv.zst");
    let (folder, _) = folder();
    let page = folder.path().join("page.html");
    let html = [trace.as_os_str(), "--html".as_ref(), page.as_os_str()];
    let ran = drystone([&["demo".as_ref()][..], &html].concat()).expect(0);
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
    let small = small.to_str().unwrap();
    let ran = drystone(["demo", small, small, "--capacity", "1GiB"]).expect(0);
    assert!(ran.stdout.contains("All 2 programs, each on such a GPU\n"), "{ran:?}");
    assert!(ran.stdout.contains("Drystone                      runs  2; needs "), "{ran:?}");
    let ran = drystone(["demo"]).expect(2);
    assert!(ran.complaint().contains("run this in a checkout of Drystone"), "{ran:?}");
}
