"""In `use_mem_pool`, blocks that another stream used stay taken after both streams are done.
https://github.com/pytorch/pytorch/issues/175015

Device: memory:8GiB,kernel_us:200,oracle:true
"""
import torch
from common import block, need_pools, say_refused, use

need_pools()
free, _ = torch.cuda.mem_get_info()
other, refused = torch.cuda.Stream(), 0
with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
    for _ in range(20):
        try:
            one = block(free * 0.4)
        except torch.cuda.OutOfMemoryError:
            refused += 1
            continue
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            use(one)
        one.record_stream(other)
        del one
        torch.cuda.synchronize()
say_refused(refused)
