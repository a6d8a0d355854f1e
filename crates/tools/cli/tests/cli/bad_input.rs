//! Whatever is wrong with a file, an option or an output: one line, exit code 2, nothing left over.

use crate::tool::{Ran, SMALL, drystone, drystone_with, file, folder, names};

/// Every subcommand that takes files, on one file.
fn on_every_command(path: &str) -> [Ran; 4] {
    ["inspect", "replay", "compare", "fit"].map(|command| drystone([command, path]))
}

#[cfg(unix)]
#[test]
fn names_cannot_break_lines_or_drive_the_terminal() {
    let (folder, _) = folder();
    let path = file(&folder, "a\nb\u{1b}[31m.csv");
    let ran = drystone(["inspect", &path]).expect(2);
    assert!(ran.complaint().contains("a\u{fffd}b\u{fffd}[31m.csv: "), "{ran:?}");
    std::fs::write(&path, SMALL).unwrap();
    let ran = drystone(["compare", &path]).expect(0);
    assert!(ran.stdout.starts_with("a\u{fffd}b\u{fffd}[31m: 11 events"), "{ran:?}");
}

#[test]
fn rubbish_of_every_kind_is_refused() {
    let cases: [&[u8]; 7] = [
        b"",
        b"\x00\x01\x02\x03",
        b"hello world\n",
        b"\x80\x02cos\nsystem\nU\x04true\x85R.",
        b"{\"segments\": [[[[[[",
        b"\x28\xb5\x2f\xfd",
        b"op,id,bytes,stream,time_ns\nf,7,512,0,0\n",
    ];
    for input in cases {
        let ran = drystone_with(["inspect", "-"], input).expect(2);
        assert!(ran.complaint().starts_with("drystone: <stdin>: "), "{ran:?}");
        assert_eq!(ran.stdout, "");
    }
}

#[test]
fn missing_files_and_folders_are_told_apart() {
    let (folder, path) = folder();
    for ran in on_every_command(folder.path().to_str().unwrap()) {
        assert!(ran.expect(2).complaint().contains("is a directory; name files in it"));
    }
    for ran in on_every_command(&file(&folder, "missing")) {
        assert!(ran.expect(2).complaint().contains("missing: No such file"));
    }
    for ran in on_every_command(&format!("{path}/below")) {
        assert!(ran.expect(2).complaint().contains("below: "));
    }
}

#[test]
fn an_unreadable_file_is_named() {
    // Reading this as a file fails for every user, root included.
    let Ok(true) = std::path::Path::new("/proc/self/mem").try_exists() else {
        println!("skipped: needs /proc");
        return;
    };
    let ran = drystone(["inspect", "/proc/self/mem"]).expect(2);
    assert!(ran.complaint().contains("/proc/self/mem: "), "{ran:?}");
}

#[test]
fn an_unwritable_output_is_told_before_any_work() {
    let (folder, path) = folder();
    for option in ["--html", "--svg"] {
        for target in [file(&folder, "no/such/out"), file(&folder, ""), format!("{path}/out")] {
            let ran = drystone(["replay", &path, option, &target]).expect(2);
            assert!(ran.complaint().starts_with("drystone: "), "{ran:?}");
            assert_eq!(ran.stdout, "");
        }
    }
    assert_eq!(names(folder.path()), ["small.csv"]);
}

#[test]
fn no_file_is_written_twice_or_over_what_is_read() {
    let (folder, path) = folder();
    let (input, out) = (path.as_str(), file(&folder, "out"));
    let roundabout = file(&folder, "./small.csv");
    for (arguments, wants) in [
        (vec!["compare", input, "--html", &out, "--svg", &out], "out: named twice"),
        (vec!["compare", input, "--html", input], "small.csv: is read"),
        (vec!["replay", input, "--svg", &roundabout], "small.csv: is read"),
        (vec!["convert", input, input], "small.csv: is read"),
        (vec!["replay", input, "--html", "-"], "standard output has the table"),
    ] {
        let ran = drystone(&arguments).expect(2);
        assert!(ran.complaint().contains(wants), "{arguments:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{arguments:?}");
    }
    assert_eq!(names(folder.path()), ["small.csv"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), SMALL);
}

#[cfg(unix)]
#[test]
fn devices_hold_nothing_to_lose() {
    let (_folder, path) = folder();
    let null = "/dev/null";
    drystone(["replay", &path, "--html", null, "--svg", null]).expect(0);
}

#[test]
fn a_failed_run_leaves_no_output_and_keeps_the_old_one() {
    let (folder, _) = folder();
    let [bad, out] = ["bad.csv", "out.html"].map(|name| file(&folder, name));
    std::fs::write(&bad, "hello\n").unwrap();
    for before in [None, Some("old")] {
        if let Some(text) = before {
            std::fs::write(&out, text).unwrap();
        }
        drystone(["replay", &bad, "--html", &out]).expect(2);
        assert_eq!(std::fs::read_to_string(&out).ok().as_deref(), before);
    }
    assert_eq!(names(folder.path()), ["bad.csv", "out.html", "small.csv"]);
}

#[test]
fn bad_options_are_refused_with_what_is_valid() {
    let (_folder, path) = folder();
    let path = path.as_str();
    for (arguments, wants) in [
        (vec!["replay"], "FILE"),
        (vec!["replay", path, "--capacity", "12 parsecs"], "unknown unit"),
        (vec!["replay", path, "--capacity", "0"], "more than zero"),
        (vec!["replay", path, "--jobs", "0"], "--jobs"),
        (vec!["replay", path, "--event-latency-us", "-1"], "event-latency-us"),
        (vec!["replay", path, "--allocator", "jemalloc"], "drystone-vmm"),
        (vec!["convert", path, "x.csv", "--allocator", "nope"], "drystone-vmm"),
        (vec!["convert", path, "x.csv", "--conf", "junk"], "--conf has no effect here"),
        (vec!["convert", path, "-", "-f", "json", "--conf", "junk:1"], "junk"),
        (vec!["replay", path, "--conf", "nonsense:1"], "nonsense"),
        (vec!["compare", path, "--torch-conf", "nonsense:1"], "nonsense"),
    ] {
        let ran = drystone(&arguments).expect(2);
        assert!(ran.stderr.contains(wants), "{arguments:?}: {ran:?}");
        assert_eq!(ran.stdout, "", "{arguments:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (_folder, path) = folder();
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_drystone"))
        .arg("inspect")
        .args([&path; 40])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), b"".as_slice()));
}
