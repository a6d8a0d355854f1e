//! The JSON report: every figure unrounded, bytes as whole numbers, units in the names.

use anyhow::Result;

/// Raised when a field changes its meaning or goes away; new fields do not raise it.
pub const SCHEMA: u32 = 1;

/// What every JSON report opens with.
#[derive(Debug, serde::Serialize)]
pub struct Document<'a, T> {
    pub schema: u32,
    pub drystone: &'static str,
    pub command: &'a str,
    /// One per trace, in the order of the files.
    pub traces: &'a [T],
    /// Files that could not be used.
    pub errors: &'a [Failed],
}

/// A file that could not be used.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Failed {
    /// The whole message, as on standard error.
    pub message: String,
}

/// The text of a document, with a newline at its end.
pub fn render<T: serde::Serialize>(
    command: &str,
    traces: &[T],
    errors: &[Failed],
) -> Result<String> {
    let document =
        Document { schema: SCHEMA, drystone: env!("CARGO_PKG_VERSION"), command, traces, errors };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}
