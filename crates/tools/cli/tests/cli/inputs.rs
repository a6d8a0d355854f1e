//! Standard input, patterns, several files at once.

use crate::tool::{SMALL, drystone, drystone_with, file, folder, shipped};

#[test]
fn standard_input_is_a_file_like_any_other() {
    let ran = drystone_with(["inspect", "-", "--json"], SMALL.as_bytes()).expect(0);
    let trace = &ran.json()["traces"][0];
    assert_eq!(trace["file"], "<stdin>");
    assert_eq!(trace["summary"]["peak_requested_bytes"], 4_194_304 + 8_388_608);
    let compressed = std::fs::read(shipped("resnet50_train_eval_amp")).unwrap();
    let ran = drystone_with(["inspect", "-", "--json"], &compressed).expect(0);
    assert_eq!(ran.json()["traces"][0]["summary"]["events"], 26_488);
}

#[test]
fn patterns_work_without_a_shell() {
    let (folder, _) = folder();
    std::fs::write(file(&folder, "other.csv"), SMALL).unwrap();
    let ran = drystone(["inspect", "--json", &file(&folder, "*.csv")]);
    let json = ran.expect(0).json();
    let names: Vec<_> = json["traces"].as_array().unwrap().iter().map(|t| &t["trace"]).collect();
    assert_eq!(names, ["other", "small"]);
}

#[test]
fn results_keep_the_order_of_the_files_whatever_the_jobs() {
    let files =
        ["convnext_base_multires_train", "graphsage_neighbor_sampling", "resnet50_train_eval_amp"];
    let [first, second, third] = files.map(shipped);
    for jobs in ["1", "8"] {
        let ran = drystone(["inspect", "--jobs", jobs, &first, &second, &third]).expect(0);
        let heads: Vec<_> = ran.stdout.lines().filter(|line| files.contains(line)).collect();
        assert_eq!(heads, files);
    }
}

#[test]
fn one_bad_file_does_not_keep_the_others_from_being_reported() {
    let (folder, path) = folder();
    let missing = file(&folder, "missing.csv");
    let ran = drystone(["inspect", &missing, &path]).expect(2);
    assert!(ran.complaint().contains("missing.csv: "), "{ran:?}");
    assert!(ran.stdout.starts_with("small\n"), "{ran:?}");
    let ran = drystone(["inspect", &path, &missing, "--json"]).expect(2);
    let json = ran.json();
    assert_eq!(json["traces"].as_array().unwrap().len(), 1);
    assert!(json["errors"][0]["message"].as_str().unwrap().contains("missing.csv"));
}
