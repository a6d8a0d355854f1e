"""A small block that stays is made between large ones that go; then one large block is wanted.
https://docs.pytorch.org/devlogs/eager/2026-06-01-cuda-caching-allocator

Device: memory:80GiB,kernel_us:20,oracle:true
"""
from common import MIB, block, say_held, use

stay = []
for _ in range(40):
    before = [block(100 * MIB) for _ in range(8)]
    stay.append(block(6 * MIB))
    after = [block(100 * MIB) for _ in range(8)]
    use(*before, *after)
    del before, after
    use(block(1500 * MIB))
say_held()
