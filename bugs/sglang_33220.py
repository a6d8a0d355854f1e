"""Graphs of 51 batch sizes are captured, largest first, into one pool, each on a side stream of
its own. No two run at once.
https://github.com/sgl-project/sglang/pull/33220

Device: memory:80GiB,kernel_us:20,oracle:true
"""
import torch
from common import GIB, MIB, block, need_graphs, say_held, use

need_graphs()
weights = block(4 * GIB)
pool, graphs = torch.cuda.graph_pool_handle(), []
for size in range(64, 13, -1):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.Stream()):
        layers = [block(size * 8 * MIB) for _ in range(4)]
        use(*layers)
        del layers
    graphs.append(graph)
for graph in graphs:
    graph.replay()
say_held()
