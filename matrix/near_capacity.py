"""Out of memory after hours, with gigabytes reserved and unallocated and the setting on. Small
blocks that stay come between large ones that go, on a device 2 % larger than the need. Passes if
nothing is refused.
https://github.com/pytorch/pytorch/issues/152135

Device: memory:1880MiB,oracle:true
"""
from common import MIB, block, judged, use

with judged():
    stay, go = [], []
    for _ in range(40):
        stay.append(block(5 * MIB))
        go.append(block(40 * MIB))
    use(*stay, *go)
    del go
    use(block(1600 * MIB))
