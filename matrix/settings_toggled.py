"""A program turns expandable segments off and on around a sleep, as vLLM does since 0.20.
Passes if each change goes on, and nothing is refused or moved.
https://github.com/vllm-project/vllm/pull/41268

Device: memory:4GiB,oracle:true
"""
import os

import torch
from common import MIB, block, judged, use

with judged():
    kept = [block(50 * MIB) for _ in range(10)]
    addresses = [one.data_ptr() for one in kept]
    for _ in range(10):
        for state in ("False", "True"):
            torch.cuda.memory._set_allocator_settings(f"expandable_segments:{state}")
            kept.append(block(30 * MIB))
            use(*kept, block(700 * MIB))
        torch.cuda.empty_cache()
    assert addresses == [one.data_ptr() for one in kept[:10]], "live memory lies elsewhere"
