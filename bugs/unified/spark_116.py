"""A small model is trained on samples of very different lengths on a machine whose GPU has the
host's memory. What is cached of long ones adds up, until the user's own watchdog ends the run where
less than 16 GiB are available. Emptying the cache after each sample helped. Drystone is told of
that line as its user would.
https://github.com/NVIDIA/dgx-spark-playbooks/issues/116

Device: memory:121.6GiB,profile:unified
"""
import os
import random

import torch
from host import Host
from common import GIB, block, use

floor = "host_floor:16GiB"
os.environ["DRYSTONE_CONF"] = ",".join(filter(None, (os.environ.get("DRYSTONE_CONF"), floor)))
host = Host(gate=16 / 121.6)
host.takes(12 * GIB)  # the trainer, its loaders
kept = [block(GIB) for _ in range(30)]  # the model, the one it learns from, states
rng = random.Random(116)


def train(tokens):
    host.reads(tokens * 16384)
    layers = [block(tokens * 70_000) for _ in range(24)]
    use(*layers)
    for wide in (4, 2, 4):  # logits of both models, and their difference
        use(block(tokens * 152_000 * wide))
    while layers:
        use(block(layers.pop().numel() / 2))


samples = [min(16384, int(512 * rng.lognormvariate(1, 1.1))) for _ in range(512)]
torch.cuda.synchronize()
host.run(train, samples)
