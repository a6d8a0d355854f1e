"""Context parallelism and CUDA graphs: NCCL registers the buffers of captured collectives by
address, and replays use the registration. Passes if the memory behind a graph's tensors stays what
it was at the capture, while others come and go.
https://github.com/pytorch/torchtitan/issues/3306

Device: memory:2GiB,oracle:true
"""
import ctypes

import torch
from common import MIB, block, judged, need_graphs, use

cuda = ctypes.CDLL("libcuda.so.1")
need_graphs()


def memory_of(tensor):
    """The handles of a tensor's memory; none of plain memory."""
    found, handle = [], ctypes.c_uint64()
    for address in range(tensor.data_ptr(), tensor.data_ptr() + tensor.numel(), 2 * MIB):
        status = cuda.cuMemRetainAllocationHandle(ctypes.byref(handle), ctypes.c_uint64(address))
        found.append(handle.value if status == 0 else None)
    return found


with judged():
    graph, pool = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for size in (20, 60, 100):
            pool.append(torch.empty(size * MIB, dtype=torch.uint8, device="cuda").add_(1))
    registered = [memory_of(one) for one in pool]
    for step in range(20):
        work = [block(size * MIB) for size in (300, 200 + step, 400, 500 - step, 150)]
        use(*work)
        del work[::2]
        use(block(1100 * MIB))
        del work
        graph.replay()
        assert registered == [memory_of(one) for one in pool], f"other memory at replay {step}"
