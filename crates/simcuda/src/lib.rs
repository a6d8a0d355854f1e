//! libcuda, libcudart and NVML made of a simulated device.
