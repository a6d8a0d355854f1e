"""`max_split_size_mb` beside expandable segments: each cycle takes new memory. Passes if at most a
tenth more is held than is in use.
https://github.com/pytorch/pytorch/issues/123548

Device: memory:80GiB,kernel_us:20,oracle:true
Settings: max_split_size_mb:128
"""
import torch
from common import MIB, block, held, judged

with judged():
    stay = []
    for _ in range(100):
        two = [block(91 * MIB), block(45.5 * MIB)]
        stay.append(block(2 * MIB))
        del two
    need = torch.cuda.max_memory_allocated()
    assert held() <= 1.1 * need, f"{held() / MIB:.0f} MiB held for {need / MIB:.0f} in use"
