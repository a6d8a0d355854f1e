"""Reinforcement learning with experts: their sizes differ each step, and from the second step on
the largest request is refused.
https://github.com/NovaSky-AI/SkyRL/pull/1470

Device: memory:140GiB,kernel_us:20,oracle:true
"""
import random

import torch
from common import GIB, block, say_refused, use

order = random.Random(1470)
weights = [block(GIB) for _ in range(96)]
refused = 0
for _ in range(10):
    try:
        # Tokens that each of the experts of a layer gets.
        for _ in range(8):
            shares = [order.expovariate(1) for _ in range(16)]
            experts = [block(20 * GIB * share / sum(shares)) for share in shares]
            kept = block(order.uniform(0.8, 1.0) * GIB)
            use(kept, *experts)
            weights.append(kept)
            del experts, kept
        use(block(18.91 * GIB))
    except torch.cuda.OutOfMemoryError:
        refused += 1
    del weights[96:]
say_refused(refused)
