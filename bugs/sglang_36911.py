"""Sampling works in the idle memory of a graph's pool: many small tensors, then one over the
whole vocabulary. A workspace that stays in each segment hides the rest of it.
https://github.com/sgl-project/sglang/pull/36911

Device: memory:16GiB,kernel_us:20,oracle:true
"""
import torch
from common import GIB, MIB, block, need_pools, say_held, use

need_pools()
pool, graph, workspaces = torch.cuda.MemPool(), torch.cuda.CUDAGraph(), []
with torch.cuda.graph(graph, pool=pool.id):
    for _ in range(8):
        temporary = block(510 * MIB)
        workspaces.append(block(2 * MIB))
        use(temporary, workspaces[-1])
        del temporary
        layers = [block(256 * MIB) for _ in range(2)]
        use(*layers)
        del layers
graph.replay()
torch.cuda.synchronize()
with torch.cuda.use_mem_pool(pool):
    small = [block(4 * MIB) for _ in range(32)]
    probabilities = block(GIB)
    use(probabilities, *small)
say_held()
