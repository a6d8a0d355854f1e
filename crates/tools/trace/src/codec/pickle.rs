//! Python pickles, as plain data: a reader that runs nothing, and a writer.
//!
//! The reader knows the opcodes of data (numbers, texts, lists, tuples, dictionaries, memo), in
//! every protocol from 0 to 5. An opcode that imports, calls or builds objects is an error that
//! names it. The writer keeps to what MemoryViz understands: protocol 2, integers of up to 8
//! bytes, at most 1000 items appended at a time.

#[cfg(feature = "analysis")]
mod cursor;
#[cfg(feature = "analysis")]
mod machine;
#[cfg_attr(not(feature = "analysis"), expect(dead_code, reason = "most are only read"))]
mod opcode;
#[cfg(feature = "analysis")]
mod text;
mod write;

#[cfg(feature = "analysis")]
pub(super) use machine::read;
pub(super) use write::Writer;

#[cfg(all(test, feature = "analysis"))]
mod tests;
