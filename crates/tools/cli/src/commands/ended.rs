//! The exit codes that the subcommands share.

/// How a command ended, apart from errors that end it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All files were used; nothing ran out of memory.
    Well,
    /// All files were used; an allocator ran out of memory.
    OutOfMemory,
    /// A file could not be used; the others were.
    BadInput,
}

impl Ended {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Ended::Well => 0,
            Ended::OutOfMemory => 1,
            Ended::BadInput => 2,
        }
    }
}
