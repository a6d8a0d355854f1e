"""In a part of a GPU (MIG) NVML refuses what a container asks. An honest out of memory then
becomes an internal assertion. Passes if it is `torch.OutOfMemoryError`, and the program goes on.
https://github.com/pytorch/pytorch/issues/197312

Device: profile:mig,nvml:false,oracle:true
"""
import torch
from common import GIB, MIB, block, judged, use

with judged():
    kept = [block(GIB) for _ in range(8)]
    try:
        block(4 * GIB)
        raise AssertionError("4 of 2 GiB were served")
    except torch.OutOfMemoryError:
        pass
    del kept[::2]
    use(block(3 * GIB), block(100 * MIB))
