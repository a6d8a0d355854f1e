"""NCCL registers a tensor as one allocation: the handle at its address, mapped elsewhere over
the whole range that the driver tells. A range of several handles is refused. Passes if what a
`MemPool` gave can be registered so.
https://github.com/pytorch/pytorch/issues/165419

Device: memory:8GiB
"""
import ctypes

import torch
from common import MIB, driver, judged

start, room, size = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
handle, status = ctypes.c_uint64(), 0
cuda = ctypes.CDLL("libcuda.so.1")
with judged():
    tensors = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in (7, 64, 200)]
    for tensor in tensors:
        address = ctypes.c_uint64(tensor.data_ptr())
        driver("cuMemGetAddressRange_v2", ctypes.byref(start), ctypes.byref(size), address)
        end = start.value + size.value
        assert start.value <= address.value and end >= address.value + tensor.numel(), "not all"
        if cuda.cuMemRetainAllocationHandle(ctypes.byref(handle), start):
            # Plain memory, which is one allocation.
            driver("cuIpcGetMemHandle", ctypes.create_string_buffer(64), start)
            continue
        nothing, flags = ctypes.c_size_t(0), ctypes.c_uint64(0)
        driver("cuMemAddressReserve", ctypes.byref(room), size, nothing, flags, flags)
        status = cuda.cuMemMap(room, size, nothing, handle, flags)
        assert status == 0, f"cuMemMap of {size.value // MIB} MiB returned {status}"
        driver("cuMemUnmap", room, size)
        driver("cuMemAddressFree", room, size)
        driver("cuMemRelease", handle)
