"""A virtual GPU, or a container, whose driver is new and has no virtual memory: calls of it are
not supported. Passes if a program with varying sizes is served.
https://github.com/dmlc/xgboost/issues/12217

Device: memory:8GiB,profile:virtual-gpu,oracle:true
"""
import random

import torch
from common import MIB, block, judged, use

with judged():
    sizes, stays = random.Random(5), [block(40 * MIB) for _ in range(20)]
    for _ in range(30):
        work = [block(sizes.randrange(1, 120) * MIB) for _ in range(30)]
        use(*work, *stays)
        del work
    torch.cuda.empty_cache()
