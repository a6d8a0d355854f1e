//! What programs may see is what they see without the library: each row of the table in
//! `docs/use/preload.md`, printed by a program with and without it, and compared.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{CONF, Program, library};
use drystone_testkit::describe;

/// A case of the program prints the same, preloaded or not.
fn is_the_same(case: &str) {
    let Some(program) = Program::new("behaves.c", &["-DWAY=0", "-l:libcudart.so.13", "-lcuda"])
    else {
        return;
    };
    let [plain, preloaded] = [None, Some(library())].map(|preloaded| {
        // Some cases hand over handles that are gone, on purpose.
        let conf = format!("{CONF},stale_handles_end:false");
        let output = program.command(preloaded, &conf).arg(case).output().unwrap();
        assert!(output.status.success(), "{}", describe(&output));
        String::from_utf8(output.stdout).unwrap()
    });
    assert!(plain.lines().count() > 4, "{plain}");
    assert_eq!(preloaded, plain);
}

/// One test for each case, by its name.
macro_rules! cases {
    ($($test:ident: $case:literal;)*) => {
        $(
            #[test]
            fn $test() {
                is_the_same($case);
            }
        )*

        const CASES: &[&str] = &[$($case),*];
    };
}

cases! {
    the_context_that_is_current: "context";
    frees_by_the_other_interface: "mixed_frees";
    attributes_and_ranges_of_addresses: "attributes";
    what_other_processes_may_have: "sharing";
    errors_of_wrong_calls: "errors";
    threads_without_a_context: "threads";
    b31_memory_that_runs_out: "out_of_memory";
    free_memory_of_the_device: "information";
    i11_captures: "captures";
    pools_that_come_and_go: "pools";
    a_reset_of_the_device: "reset";
    events_and_waits: "orders";
}

#[test]
fn every_case_is_in_the_document() {
    let page = std::fs::read_to_string(common::folder().join("../../docs/use/preload.md")).unwrap();
    for case in CASES {
        assert!(page.contains(&format!("`{case}`")), "docs/use/preload.md lacks {case}");
    }
}
