//! The exit codes that the subcommands share.

/// How a command ended, apart from errors that end it at once. Its number is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All files were used; nothing ran out of memory.
    Well,
    /// All files were used; an allocator ran out of memory.
    OutOfMemory,
    /// A file could not be used; the others were.
    BadInput,
}
