//! Python pickles, as plain data: a reader that runs nothing, and a writer.
//!
//! The reader knows the opcodes of data (numbers, texts, lists, tuples, dictionaries, memo), in
//! every protocol from 0 to 5. An opcode that imports, calls or builds objects is an error that
//! names it. The writer keeps to what MemoryViz understands: protocol 2, integers of up to 8
//! bytes, at most 1000 items appended at a time.

mod machine;
mod number;
mod opcode;
mod text;
mod write;

pub(super) use machine::read;
pub(crate) use write::Pickler;

#[cfg(test)]
mod tests;
