"""Graphs are captured, smallest first, into one pool. PyTorch's developers, 1 June 2026:
https://docs.pytorch.org/devlogs/eager/2026-06-01-cuda-caching-allocator

Device: memory:80GiB,kernel_us:20,oracle:true
"""
import torch
from common import MIB, block, need_graphs, say_held, use

need_graphs()
pool, graphs, stream = torch.cuda.graph_pool_handle(), [], torch.cuda.Stream()
for size in range(1, 65):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=stream):
        layers = [block(size * 2 * MIB) for _ in range(6)]
        use(*layers)
        del layers
    graphs.append(graph)
say_held()
