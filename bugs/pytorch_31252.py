"""Training with batches of varying length and evaluation with other sizes take turns.
https://github.com/pytorch/pytorch/issues/31252

Device: memory:8GiB,kernel_us:20,oracle:true
"""
import random

import torch
from common import GIB, MIB, block, say_refused, use

order = random.Random(31252)
weights = [block(order.randrange(8, 48) * MIB) for _ in range(40)]
room = 7.6 * GIB - torch.cuda.memory_allocated()


def step(parts):
    """Layers whose sizes sum up to all that there is, each with a temporary beside it."""
    shares = [order.uniform(0.7, 1.3) for _ in range(parts)]
    unit = room / (sum(shares) + max(shares))
    layers = []
    for share in shares:
        layers.append(block(unit * share))
        temporary = block(unit * share)
        use(layers[-1], temporary)
        del temporary
    return layers


refused = 0
for round_ in range(60):
    try:
        step(parts=18 if round_ % 2 else 5)
    except torch.cuda.OutOfMemoryError:
        refused += 1
say_refused(refused)
