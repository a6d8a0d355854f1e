//! What tests ask of the simulated libcuda they run on.
