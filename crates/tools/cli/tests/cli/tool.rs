//! Runs the command and looks at what came of it.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What each allocator made of the first trace, from JSON.
    pub fn runs(&self) -> Vec<serde_json::Value> {
        self.json()["traces"][0]["runs"].as_array().unwrap().clone()
    }

    /// Asserts the exit code and that nothing panicked.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        self
    }

    /// The only line on standard error.
    pub fn complaint(&self) -> &str {
        let lines: Vec<_> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "one line expected: {self:?}");
        assert!(lines[0].starts_with("drystone: "), "{self:?}");
        lines[0]
    }
}

pub fn drystone<I>(arguments: I) -> Ran
where
    I: IntoIterator<Item: AsRef<std::ffi::OsStr>>,
{
    drystone_with(arguments, b"")
}

/// Runs `drystone` with these arguments and this standard input.
pub fn drystone_with<I>(arguments: I, input: &[u8]) -> Ran
where
    I: IntoIterator<Item: AsRef<std::ffi::OsStr>>,
{
    let mut child = Command::new(env!("CARGO_BIN_EXE_drystone"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A shipped trace's file.
pub fn shipped(name: &str) -> String {
    format!("{}/../../../traces/{name}.csv.zst", env!("CARGO_MANIFEST_DIR"))
}

pub fn file(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

/// Three iterations of two tensors; small enough to reason about.
pub const SMALL: &str = "\
# gpu-alloc-trace v1; name=small
op,id,bytes,stream,time_ns
a,0,4194304,0,0
a,1,8388608,0,1000
f,1,8388608,0,2000
m,0,0,0,3000
a,1,8388608,0,4000
f,1,8388608,0,5000
m,1,0,0,6000
a,1,1000,0,7000
f,1,1000,0,8000
f,0,4194304,0,9000
m,2,0,0,10000
";

/// A folder with `small.csv` in it, and that file.
pub fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "small.csv");
    std::fs::write(&path, SMALL).unwrap();
    (folder, path)
}

pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
