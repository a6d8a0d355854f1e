// In the place of glibc's, for libstdc++'s headers: a process is never taken for one of a single
// thread.
//
// Invariant: what is compiled with this folder in front asks the C library for nothing that came
// after 2.28. The variable of this name came with 2.32; without it counts of references are atomic
// always, as PyTorch's own are.

#pragma once

static const char __libc_single_threaded = 0;
