//! JSON: read into the same values as a pickle's, and written as it streams out.

#[cfg(feature = "analysis")]
mod read;
mod write;

#[cfg(feature = "analysis")]
pub(super) use read::read;
pub(super) use write::Writer;
