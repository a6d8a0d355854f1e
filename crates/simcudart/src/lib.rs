//! libcudart and NVML over the simulated libcuda.
