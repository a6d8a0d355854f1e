//! The script that holds replays against the goals, `xtask/figures.py`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

/// What it makes of cells as `drystone sweep --json` prints them.
#[test]
fn goals_depend_on_the_device_and_means_have_their_own() {
    let said = common::python(
        "xtask",
        "from figures import *\n\
         def cell(allocator, device, refused, time, calls):\n\
         \x20   return {'allocator': allocator, 'configuration': '', 'device': device,\n\
         \x20           'out_of_memory_events': refused, 'driver_time_us': time,\n\
         \x20           'steady_driver_time_us': time / 4, 'steady_driver_calls': calls}\n\
         def rows(device, refused, time, calls):\n\
         \x20   return rows_of({'trace': 't', 'cells': [cell(OURS, device, refused, time, calls),\n\
         \x20       cell(EXPANDABLE, device, 0, 1000.0, 8)]}, '')\n\
         for device in ('ample', '1.1x', '1.02x', '80GiB'):\n\
         \x20   print(*rows(device, 1, 1500.0, 9)[0]['missed'])\n\
         print(*rows('ample', 0, 1000.0, 8)[0]['missed'])\n\
         print(summary(rows('1.34x', 0, 1500.0, 0)))\n\
         print(geometric_mean([0, math.inf, None]), geometric_mean([2, 8, 0]))",
    );
    let lines: Vec<&str> = said.lines().collect();
    let missed = ["refused time calls", "refused time", "refused late", "", ""];
    assert_eq!(lines[..5], missed);
    assert!(said.contains("   1 of    1 rows miss: driver time of the whole"), "{said}");
    assert!(said.contains("   0 of    0 rows miss: waits"), "{said}");
    assert!(said.contains("1.34x: driver time over expandable's 1.500! goal 0.5"), "{said}");
    assert_eq!(lines.last(), Some(&"None 4.0"));
}

#[test]
fn a_fit_is_small_and_no_larger_than_that_of_expandable_segments() {
    let said = common::python(
        "xtask",
        "from figures import *\n\
         def fit(ours, expandable, time):\n\
         \x20   found = {'trace': 't', 'fits': [ours, expandable, None, None],\n\
         \x20            'time': [time, 9.0, None, None],\n\
         \x20            'makespan': [time / 2, 2.0, None, None]}\n\
         \x20   return found | {'missed': missed(found, FIT_GOALS)}\n\
         fits = (1.01, 1.01, 2), (1.01, 1.009, 2), (None, 1.3, 1), (1.02, None, 2.5)\n\
         for one in fits:\n\
         \x20   print(','.join(fit(*one)['missed']))\n\
         print(fit_line(fit(1.02, 1.5, 1.25)))\n\
         print(fit_summary([fit(1.01, 1.5, 1.0), fit(1.01, None, 3.0)]))",
    );
    let all = "fit,time at the brim,makespan at the brim";
    assert_eq!(said.lines().take(4).collect::<Vec<_>>(), ["", "fit", "fit", all]);
    for part in [
        " 1.0200/1.5000/-/-! ",
        " 1.2500/9.0000/-/- ",
        "   0 of    2 traces miss: fits",
        "   1 of    2 traces miss: driver time",
        "drystone-vmm: fits in 1.0100 of the peak request! goal",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
