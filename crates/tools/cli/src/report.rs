//! Reports of replays: bars, the table, JSON, HTML and SVG, and the picture of a sweep.
//!
//! Invariant: all of them show the same figures; only JSON shows them unrounded.

pub mod bars;
pub mod html;
pub mod json;
pub mod pressure;
pub mod svg;
pub mod text;
