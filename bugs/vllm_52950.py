"""Weights are synchronised after each step of training, on two fresh streams, with 1 GiB on each.
The host waits before and after.
https://github.com/vllm-project/vllm/issues/52950

Device: memory:80GiB,kernel_us:20,oracle:true
"""
import torch
from common import GIB, block, say_held, use

weights = [block(GIB) for _ in range(40)]
for _ in range(20):
    activations = [block(GIB) for _ in range(12)]
    use(*activations)
    del activations
    torch.cuda.synchronize()
    for _ in range(2):
        with torch.cuda.stream(torch.cuda.Stream()):
            packed = block(GIB)
            use(packed)
            del packed
    torch.cuda.synchronize()
say_held()
