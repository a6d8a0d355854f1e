//! Generated traces: written the same each time, read back, replayed by every allocator.

use crate::tool::{drystone, file, names};

#[test]
fn the_same_command_writes_the_same_bytes_and_says_so_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let make = |seed: &str, name: &str| {
        let events = ["--events", "2000", "--live", "4GiB"];
        let more = ["random", "--seed", seed, "-o", &file(&folder, name)];
        let ran = drystone(["generate"].iter().chain(&more).chain(&events)).expect(0);
        assert!(ran.stdout.contains(&format!("seed {seed}, 20")), "{ran:?}");
        std::fs::read(file(&folder, name)).unwrap()
    };
    let first = make("9", "a.csv");
    assert_eq!(first, make("9", "b.csv"));
    assert_ne!(first, make("10", "c.csv"));
    assert_eq!(make("9", "a.csv.zst"), make("9", "b.csv.zst"));
    let head = String::from_utf8(first[..200].to_vec()).unwrap();
    assert!(head.contains("random --seed 9 --events 2000 --live 4294967296"), "{head}");
}

#[test]
fn every_program_is_listed_and_runs_under_compare() {
    let folder = tempfile::tempdir().unwrap();
    let list = drystone(["generate", "--list"]).expect(0).stdout;
    let programs: Vec<&str> = list.lines().skip(1).map(|l| l.split(' ').next().unwrap()).collect();
    assert!(programs.len() > 10, "{list}");
    let mut compare = vec!["compare".to_owned(), "--json".to_owned()];
    for program in &programs {
        let path = file(&folder, &format!("{program}.csv.zst"));
        drystone(["generate", program, "--events", "300", "-o", &path]).expect(0);
        compare.push(path);
    }
    let json = drystone(compare).expect(0).json();
    for (trace, program) in json["traces"].as_array().unwrap().iter().zip(&programs) {
        assert_eq!(trace["trace"], *program);
        assert_eq!(trace["summary"]["left_bytes"], 0, "{program}");
        for run in trace["runs"].as_array().unwrap() {
            let reserved = run["reserved_per_requested"].as_f64().unwrap();
            assert!((0.99..5.0).contains(&reserved), "{program}: {run}");
        }
    }
}

#[test]
fn what_cannot_be_made_is_said_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = file(&folder, "a.csv");
    let ran = drystone(["generate", "random", "--live", "1MiB", "-o", &out]).expect(2);
    assert!(ran.complaint().contains("random: holds 0 bytes and asks for "), "{ran:?}");
    let ran = drystone(["generate", "random", "-o", "a.json"]).expect(2);
    assert!(ran.complaint().contains("a trace ends in .csv or .csv.zst"), "{ran:?}");
    drystone(["generate", "no-such-program", "-o", &out]).expect(2);
    drystone(["generate", "random"]).expect(2);
    assert_eq!(names(folder.path()).len(), 0);
    let ran = drystone(["generate", "first-growth", "-o", "-"]).expect(0);
    assert!(ran.stdout.starts_with("# gpu-alloc-trace v1; name=first-growth --seed 1 "), "{ran:?}");
}
