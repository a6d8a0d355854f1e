"""A library of the same process (NCCL, cuBLAS) asks CUDA for memory, while PyTorch holds nearly
all of the device and uses next to nothing.
https://github.com/THUDM/slime/pull/669

Device: memory:8GiB,oracle:true
"""
import ctypes

import torch
from common import MIB, block, say_refused

free, _ = torch.cuda.mem_get_info()
blocks = [block(free * 0.19) for _ in range(5)]
stays = block(MIB)
del blocks
torch.cuda.synchronize()
with open("/proc/self/maps") as maps:
    runtime = next(line.split()[-1] for line in maps if "libcudart.so" in line)
asked, address = ctypes.c_size_t(int(free * 0.3)), ctypes.c_void_p()
runtime, driver = ctypes.CDLL(runtime), ctypes.CDLL("libcuda.so.1")
statuses = [runtime.cudaMalloc(ctypes.byref(address), asked),
            driver.cuMemAlloc_v2(ctypes.byref(address), asked)]
# Or PyTorch takes it for an error of its own.
runtime.cudaGetLastError()
say_refused(sum(status != 0 for status in statuses))
