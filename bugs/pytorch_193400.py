"""With `max_split_size_mb` and expandable segments together, each cycle takes new memory: two
blocks are freed behind a small one that stays.
https://github.com/pytorch/pytorch/pull/193400

Device: memory:80GiB,kernel_us:20,oracle:true
Settings: max_split_size_mb:128
"""
from common import MIB, block, say_held

stay = []
for _ in range(100):
    two = [block(91 * MIB), block(45.5 * MIB)]
    stay.append(block(2 * MIB))
    del two
say_held()
