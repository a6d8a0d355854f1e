//! The example of `docs/use/c-api.md` compiles strictly, runs, and prints what the page says.

mod common;

use common::{block_of_the_document, command, compile};
use drystone_testkit::{describe, simulated_cuda};

#[test]
fn the_example_of_the_document_does_what_it_says() {
    let Some(simulated) = simulated_cuda() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("example.c"), folder.path().join("example"));
    std::fs::write(&source, block_of_the_document("c")).unwrap();
    compile(&source, &program, None);
    let output = command(&program, Some(&simulated), "strict:true").output().unwrap();
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), block_of_the_document("text"));
    assert!(output.stderr.is_empty(), "{}", describe(&output));
}
