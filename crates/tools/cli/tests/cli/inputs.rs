//! Standard input, patterns, several files at once.

use crate::tool::{SMALL, drystone, drystone_with, folder, shipped};

#[test]
fn standard_input_is_a_file_like_any_other() {
    let ran = drystone_with(["inspect", "-", "--json"], SMALL.as_bytes()).expect(0);
    let trace = &ran.json()["traces"][0];
    assert_eq!(trace["file"], "<stdin>");
    assert_eq!(trace["summary"]["peak_requested_bytes"], 4_194_304 + 8_388_608);
    let compressed = std::fs::read(shipped("resnet50_train_eval_amp.csv.zst")).unwrap();
    let ran = drystone_with(["inspect", "-", "--json"], &compressed).expect(0);
    assert_eq!(ran.json()["traces"][0]["summary"]["events"], 26_488);
}

#[test]
fn patterns_work_without_a_shell() {
    let (folder, _) = folder();
    std::fs::write(folder.path().join("other.csv"), SMALL).unwrap();
    let ran = drystone(["inspect", "--json", &format!("{}/*.csv", folder.path().display())]);
    let json = ran.expect(0).json();
    let names: Vec<_> = json["traces"].as_array().unwrap().iter().map(|t| &t["trace"]).collect();
    assert_eq!(names, ["other", "small"]);
}

#[test]
fn results_keep_the_order_of_the_files_whatever_the_jobs() {
    let files =
        ["convnext_base_multires_train", "graphsage_neighbor_sampling", "resnet50_train_eval_amp"];
    let paths: Vec<_> = files.map(|name| shipped(&format!("{name}.csv.zst"))).into();
    for jobs in ["1", "8"] {
        let mut arguments = vec!["inspect".into(), "--jobs".into(), jobs.into()];
        arguments.extend(paths.iter().map(|path| path.clone().into_os_string()));
        let ran = drystone(&arguments).expect(0);
        let heads: Vec<_> = ran.stdout.lines().filter(|line| files.contains(line)).collect();
        assert_eq!(heads, files);
    }
}

#[test]
fn one_bad_file_does_not_keep_the_others_from_being_reported() {
    let (folder, path) = folder();
    let missing = folder.path().join("missing.csv");
    let ran = drystone([&"inspect".into(), &missing, &path]).expect(2);
    assert!(ran.complaint().contains("missing.csv: "), "{ran:?}");
    assert!(ran.stdout.starts_with("small\n"), "{ran:?}");
    let ran = drystone([&"inspect".into(), &path, &missing, &"--json".into()]).expect(2);
    let json = ran.json();
    assert_eq!(json["traces"].as_array().unwrap().len(), 1);
    assert!(json["errors"][0]["message"].as_str().unwrap().contains("missing.csv"));
}
