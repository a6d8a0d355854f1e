"""Another library of the process, with a pool of its own over `cudaMalloc` or `cudaMallocAsync` (as
CuPy, RMM and NCCL have), asks for what PyTorch holds unused. Passes if it gets it.
https://github.com/pytorch/pytorch/issues/128601

Device: memory:8GiB,oracle:true
"""
import ctypes

import torch
from common import MIB, block, judged, use

runtime = ctypes.CDLL("libcudart.so.13")


def call(name, *arguments):
    status = getattr(runtime, name)(*arguments)
    # Or PyTorch takes it for an error of its own.
    runtime.cudaGetLastError()
    assert status == 0, f"{name} returned {status}"


with judged():
    stays, size, stream = block(20 * MIB), ctypes.c_size_t(900 * MIB), ctypes.c_void_p()
    for take, give, *order in (("cudaMalloc", "cudaFree"),
                               ("cudaMallocAsync", "cudaFreeAsync", stream)):
        del (work := [block(1200 * MIB) for _ in range(5)])[:]
        torch.cuda.synchronize()
        arrays = [ctypes.c_void_p() for _ in range(4)]
        for array in arrays:
            call(take, ctypes.byref(array), size, *order)
        for array in arrays:
            call(give, array, *order)
        call("cudaDeviceSynchronize")
    use(stays, block(700 * MIB))
