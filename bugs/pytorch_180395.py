"""Captures break, since work of another stream was not joined; then memory is given back.
https://github.com/pytorch/pytorch/pull/180395

Device: memory:8GiB,oracle:true
"""
import gc

import torch
from common import MIB, block, say, use

for _ in range(10):
    other = torch.cuda.Stream()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            one = block(64 * MIB)
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                use(one)
    except RuntimeError:
        pass
    else:
        raise SystemExit("the capture did not break")
    del graph, one
    gc.collect()
    if torch.cuda.get_allocator_backend() != "cudaMallocAsync":
        # Its end gives its memory back, for which no capture may be under way.
        torch.cuda.MemPool()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
use(block(256 * MIB))
torch.cuda.synchronize()
say("goes on", "goes on")
