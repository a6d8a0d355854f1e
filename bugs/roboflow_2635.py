"""A server had many requests at once, and is idle now; its model takes 1 GiB.
https://github.com/roboflow/inference/pull/2635

Device: memory:16GiB,kernel_us:20,oracle:true
"""
import time

import torch
from common import GIB, block, held, say, use

weights = block(GIB)
requests = [block(GIB / 2) for _ in range(16)]
use(*requests)
del requests
for _ in range(10):
    time.sleep(0.1)
    use(block(GIB / 8))
    torch.cuda.synchronize()
say(f"{held(peak=False) / GIB:.2f} GiB", f"{1 + 1 / 8:.2f} GiB")
