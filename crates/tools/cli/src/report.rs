//! Reports of replays: the table, JSON, HTML and SVG.
//!
//! Invariant: all four show the same figures; only JSON shows them unrounded.

pub mod html;
pub mod json;
pub mod svg;
pub mod text;
