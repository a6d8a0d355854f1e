"""Expandable segments reserve 1 1/8 of the device for each stream and each pool; eight large
devices run out of addresses. Passes if streams and pools of each device are served.
https://github.com/pytorch/pytorch/issues/192269

Device: memory:192GiB,devices:8,address_space:64TiB
"""
import torch
from common import MIB, judged

with judged():
    kept = []
    for device in range(8):
        with torch.cuda.device(device):
            for stream in [torch.cuda.Stream() for _ in range(32)]:
                with torch.cuda.stream(stream):
                    kept += [torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
                             for size in (1, 30)]
