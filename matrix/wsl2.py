"""Linux under Windows: memory for network cards is created and mapped, and its access refused;
32 GiB of addresses are not reserved. Passes if a program is served beyond that.
https://github.com/pytorch/pytorch/issues/192330

Device: memory:48GiB,profile:wsl2,oracle:true
"""
from common import GIB, MIB, block, judged, use

with judged():
    weights = [block(500 * MIB) for _ in range(70)]
    use(*weights)
    del weights[::3]
    use(block(6 * GIB), block(300 * MIB))
