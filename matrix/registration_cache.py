"""A registration cache (UCX, NIXL, Mooncake) keeps what it registered by address. A network card
then writes to memory that is no longer there. Passes if the memory behind a cached address is the
one that was registered whenever a tensor lies there.
https://github.com/kvcache-ai/Mooncake/issues/2511

Device: memory:3GiB,oracle:true
"""
import ctypes
import random

import torch
from common import MIB, block, judged, use

cuda, cache = ctypes.CDLL("libcuda.so.1"), {}


def memory_at(address):
    """The handle there, kept; none of plain memory."""
    handle = ctypes.c_uint64()
    status = cuda.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_uint64(address))
    return handle.value if status == 0 else None


with judged():
    sizes, live = random.Random(5), []
    for step in range(300):
        live.append(block(sizes.randrange(2, 200) * MIB))
        use(live[-1])
        while sum(one.numel() for one in live) > 1500 * MIB:
            del live[sizes.randrange(len(live) - 1)]
        sent = live[-1]
        start = sent.data_ptr()
        for piece in range(start // (2 * MIB), (start + sent.numel()) // (2 * MIB)):
            now = memory_at(piece * 2 * MIB)
            assert cache.setdefault(piece, now) == now, f"stale memory at step {step}"
