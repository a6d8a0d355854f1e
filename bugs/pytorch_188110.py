"""Mixture of experts, nine layers: how long may sequences be until memory is refused? What
experts get comes on a stream of its own, and is more or less each time.
https://github.com/pytorch/pytorch/pull/188110

Device: memory:80GiB,kernel_us:20,oracle:true
"""
import random

import torch
from common import GIB, block, say

WIDE, LAYERS, EXPERTS = 7168, 9, 16
weights = [block(GIB) for _ in range(36)]
usual, sends = torch.cuda.current_stream(), torch.cuda.Stream()


def layer(tokens, order):
    """What a layer keeps for the way back: attention, and what its experts got."""
    row = tokens * WIDE * 2
    kept = [block(row) for _ in range(5)]
    scores = block(2 * row)
    del scores
    shares = [order.expovariate(1) for _ in range(EXPERTS)]
    got = order.uniform(2, 4) * row
    sends.wait_stream(usual)
    with torch.cuda.stream(sends):
        sent = [block(got * share / sum(shares)) for share in shares]
    usual.wait_stream(sends)
    hidden = []
    for one in sent:
        one.record_stream(usual)
        up = block(one.numel() * 2 * 2048 // WIDE)
        hidden.append(block(one.numel() * 2048 // WIDE))
        hidden.append(block(one.numel()))
        del up
    return kept + sent + hidden


def step(tokens, order):
    """Forward, the loss over the vocabulary, and back, last layer first."""
    layers = [layer(tokens, order) for _ in range(LAYERS)]
    logits = block(tokens * 129280 * 2)
    loss = block(tokens * 129280 * 4)
    del logits, loss
    while layers:
        kept = layers.pop()
        while kept:
            gradient = block(kept[-1].numel())
            with torch.cuda.stream(sends):
                back = block(kept[-1].numel())
            kept.pop()
            del gradient, back
    torch.cuda.synchronize()


longest = 0
for thousands in range(4, 21):
    order = random.Random(thousands)
    try:
        for _ in range(4):
            step(thousands * 1024, order)
    except torch.cuda.OutOfMemoryError:
        break
    longest = thousands
say(f"{longest}k tokens", "20k tokens")
