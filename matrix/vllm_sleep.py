"""vLLM's sleep mode keeps weights in a `MemPool` with an allocator of its own, and steps of varying
size come between sleeps. Passes if each sleep frees the weights, each wake brings them back to
their addresses, and nothing is refused.
https://github.com/pytorch/pytorch/issues/147851

Device: memory:8GiB,oracle:true
"""
import random

import torch
from common import GIB, MIB, block, held, judged, need_pools

need_pools()
with judged():
    from vllm.device_allocator.cumem import CuMemAllocator
    sleeper = CuMemAllocator.get_instance()
    with sleeper.use_memory_pool(tag="weights"):
        weights = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    addresses = [one.data_ptr() for one in weights]
    sizes = random.Random(5)
    for _ in range(5):
        awake = held(peak=False)
        sleeper.sleep(offload_tags=())
        freed = awake - held(peak=False)
        assert freed >= 2 * GIB, f"a sleep frees {freed / MIB:.0f} of 2048 MiB"
        del (work := [block(sizes.randrange(50, 250) * MIB) for _ in range(24)])[:]
        torch.cuda.empty_cache()
        sleeper.wake_up()
        for one in weights:
            one.add_(1)
        assert addresses == [one.data_ptr() for one in weights], "weights lie elsewhere"
        for _ in range(8):
            del (work := [block(sizes.randrange(50, 500) * MIB) for _ in range(10)])[:]
