"""Weights of 42 layers of experts are loaded, then repacked one after the other on a machine whose
GPU has the host's memory. What becomes of the old ones stays cached, and the host runs short; the
cluster's watchdog ends the process where less than 5 % are available.
https://github.com/vllm-project/vllm/pull/45179

Device: memory:121.6GiB,profile:unified
"""
import torch
from host import Host
from common import GIB, MIB, block, use

MODULES, EXPERTS = 42, 144
host = Host(gate=0.05)
host.takes(8 * GIB)  # the engine's processes
raw = [[] for _ in range(MODULES)]


def load():
    for module in raw:
        module += [block(size) for size in (1.2 * GIB, 0.6 * GIB, 75 * MIB, 38 * MIB)]
        host.reads(1.9 * GIB)


def packed(weight):
    """Expert after expert, and all together."""
    pieces = [block(weight.numel() / EXPERTS) for _ in range(EXPERTS)]
    use(*pieces)
    return block(weight.numel())


def repack(module):
    new = [packed(weight) for weight in module[:2]]
    # Scales are permuted, and wider in between.
    for scale in module[2:]:
        wide = block(2 * scale.numel())
        new.append(block(scale.numel()))
        use(wide)
    module[:] = new


torch.cuda.synchronize()
host.run(repack, raw, before=load)
