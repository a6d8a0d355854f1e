//! The example in `docs/use/simcuda.md`, compiled and run.

use crate::program::libraries;
use std::path::Path;
use std::process::Command;

#[test]
fn the_documents_c_program_finds_the_bug_it_shows() {
    let Some(libraries) = libraries() else { return };
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/use/simcuda.md");
    let text = std::fs::read_to_string(document).unwrap();
    let code = text.split("```c\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("test.c"), folder.path().join("test"));
    std::fs::write(&source, code).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Werror", "-o"]).arg(&program).arg(&source);
    compile.arg("-L").arg(&libraries).arg("-l:libcuda.so.1");
    assert!(compile.status().unwrap().success());
    let mut run = Command::new(program);
    run.env("LD_LIBRARY_PATH", libraries).env("SIMCUDA_CONF", "memory:1GiB,oracle:true");
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("reuses memory that stream"), "{said}");
}
