"""Mixture of experts, nine layers: how long may sequences be until memory is refused? Tokens are sent to
experts on a stream of their own. https://github.com/pytorch/pytorch/pull/188110

Device: memory:80GiB,kernel_us:20,oracle:true
"""
import random

import torch
from common import GIB, block, say

WIDE, LAYERS, EXPERTS = 7168, 9, 16
weights = [block(GIB) for _ in range(24)]
usual, sends = torch.cuda.current_stream(), torch.cuda.Stream()


def layer(tokens, order):
    """What a layer keeps for the way back: attention, and what its experts got."""
    row = tokens * WIDE * 2
    kept = [block(row) for _ in range(6)]
    scores = block(2 * row)
    shares = [order.expovariate(1) for _ in range(EXPERTS)]
    sends.wait_stream(usual)
    with torch.cuda.stream(sends):
        sent = [block(3 * row * share / sum(shares)) for share in shares]
    usual.wait_stream(sends)
    for one in sent:
        one.record_stream(usual)
    del scores
    return kept + sent + [block(2 * row * share / sum(shares)) for share in shares]


def step(tokens, order):
    """Forward, the loss over the vocabulary, and back, last layer first."""
    layers = [layer(tokens, order) for _ in range(LAYERS)]
    loss = [block(tokens * 129280 * 4)]
    loss.append(block(tokens * 129280 * 2))
    del loss
    while layers:
        gradients = [block(one.numel()) for one in layers.pop()[:8]]
        del gradients
    torch.cuda.synchronize()


longest = 0
for thousands in range(4, 21):
    order = random.Random(thousands)
    torch.cuda.empty_cache()
    try:
        for _ in range(3):
            step(thousands * 1024, order)
    except torch.cuda.OutOfMemoryError:
        break
    longest = thousands
say(f"{longest}k tokens", "20k tokens")
