//! What the FILE arguments stand for: paths, patterns and standard input.
//!
//! Invariant: the order of the arguments is kept, and the matches of one pattern are sorted.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use drystone_trace::codec::{self, Limits};
use drystone_trace::model::Trace;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Stdin,
    Path(PathBuf),
}

impl Input {
    /// The file; `None` for standard input.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Input::Stdin => None,
            Input::Path(path) => Some(path),
        }
    }

    /// How messages and reports call it.
    pub fn name(&self) -> String {
        match self {
            Input::Stdin => "<stdin>".into(),
            Input::Path(path) => path.display().to_string(),
        }
    }
}

/// Expands the arguments. Those that stand for nothing readable come back as errors that name them,
/// beside the rest.
pub fn expand(arguments: &[PathBuf]) -> (Vec<Input>, Vec<anyhow::Error>) {
    let (mut inputs, mut failures) = (Vec::new(), Vec::new());
    for argument in arguments {
        let expanded = expand_one(argument, inputs.contains(&Input::Stdin));
        match expanded.with_context(|| argument.display().to_string()) {
            Ok(more) => inputs.extend(more),
            Err(error) => failures.push(error),
        }
    }
    (inputs, failures)
}

/// Reads every trace of an input: one, or one for each device of a snapshot. Errors name the input.
pub fn read(input: &Input) -> Result<Vec<Trace>> {
    let limits = Limits::default();
    let traces = match input {
        Input::Stdin => codec::read(BufReader::new(std::io::stdin()), &input.name(), &limits),
        Input::Path(path) => codec::read_path(path, &limits),
    };
    // The message is whole by itself; as a chain of causes it would repeat its end.
    traces.map_err(|error| anyhow!("{error}"))
}

fn expand_one(argument: &Path, stdin_taken: bool) -> Result<Vec<Input>> {
    if argument == Path::new("-") {
        anyhow::ensure!(!stdin_taken, "standard input can be read only once");
        return Ok(vec![Input::Stdin]);
    }
    if argument.is_dir() {
        let example = argument.join("*");
        anyhow::bail!("is a directory; name files in it, for example '{}'", example.display());
    }
    let pattern = argument.to_str().filter(|text| text.contains(['*', '?', '[']));
    let Some(pattern) = pattern.filter(|_| !argument.exists()) else {
        return Ok(vec![Input::Path(argument.to_owned())]);
    };
    let matches = glob::glob(pattern).map_err(|error| anyhow!("bad pattern: {}", error.msg))?;
    let mut inputs = Vec::new();
    for path in matches {
        let path = path.map_err(|error| anyhow!("{error}")).context("bad pattern")?;
        if !path.is_dir() {
            inputs.push(Input::Path(path));
        }
    }
    anyhow::ensure!(!inputs.is_empty(), "no file matches this pattern");
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::{Input, expand};
    use std::path::PathBuf;

    #[test]
    fn patterns_are_expanded_in_order_and_the_rest_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.csv", "a.csv", "c.txt", "odd[name].csv"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("d.csv")).unwrap();
        let path = |name: &str| folder.path().join(name);
        let arguments = [path("c.txt"), path("[ab].csv"), "-".into(), path("odd[name].csv")];
        let (inputs, failures) = expand(&arguments);
        assert!(failures.is_empty());
        let expected = [
            Input::Path(path("c.txt")),
            Input::Path(path("a.csv")),
            Input::Path(path("b.csv")),
            Input::Stdin,
            Input::Path(path("odd[name].csv")),
        ];
        assert_eq!(inputs, expected);
    }

    #[test]
    fn what_cannot_be_read_is_told_and_the_rest_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let arguments: [PathBuf; 4] =
            [folder.path().join(""), folder.path().join("*.none"), "-".into(), "-".into()];
        let (inputs, failures) = expand(&arguments);
        assert_eq!(inputs, [Input::Stdin]);
        let texts: Vec<_> = failures.iter().map(|f| f.root_cause().to_string()).collect();
        assert!(texts[0].starts_with("is a directory"), "{texts:?}");
        let example = format!("'{}'", folder.path().join("*").display());
        assert!(texts[0].ends_with(&example), "{texts:?}");
        assert_eq!(texts[1], "no file matches this pattern");
        assert_eq!(texts[2], "standard input can be read only once");
    }
}
