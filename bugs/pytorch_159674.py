"""In `use_mem_pool`, what the pool has free is not given back for a larger request.
https://github.com/pytorch/pytorch/issues/159674

Device: memory:80GiB,oracle:true
"""
import torch
from common import GIB, is_served, need_pools, say_refused

need_pools()
with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
    say_refused(sum(not is_served(size * GIB) for size in (60, 70)))
