//! libdrystone.so: Drystone for C, C++ and PyTorch.
