//! CUDA's stream, as C names it.

/// CUDA's stream, as `cudaStream_t` and `CUstream` point to it.
#[expect(non_camel_case_types, reason = "the name that CUDA gives it")]
pub enum CUstream_st {}
