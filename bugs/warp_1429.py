"""A simulation captures a graph, keeps what it made, and is thrown away; then the next one.
https://github.com/NVIDIA/warp/issues/1429

Device: memory:80GiB,kernel_us:20,oracle:true
"""
import torch
from common import MIB, block, say_held, use

for _ in range(50):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        state = block(256 * MIB)
        use(state)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    del state, graph
say_held()
