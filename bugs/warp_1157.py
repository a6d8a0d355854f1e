"""A captured graph makes a temporary of 1 GiB three times, one after the other.
https://github.com/NVIDIA/warp/issues/1157

Device: memory:16GiB,kernel_us:20,oracle:true
"""
import torch
from common import GIB, block, say_held, use

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(3):
        use(block(GIB))
graph.replay()
say_held()
