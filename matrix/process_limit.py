"""Under MPS a process may have less than the device reports. Passes if the program is served up to
its share, and what lies beyond is `torch.OutOfMemoryError`.
https://github.com/pytorch/pytorch/issues/130330

Device: memory:16GiB,process_limit:4GiB,oracle:true
"""
import torch
from common import GIB, MIB, block, judged, use

with judged():
    kept = [block(300 * MIB) for _ in range(12)]
    use(*kept)
    try:
        block(2 * GIB)
        raise AssertionError("2 GiB beyond the share were served")
    except torch.OutOfMemoryError:
        pass
    del kept[::2]
    use(block(1700 * MIB))
