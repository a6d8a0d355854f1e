"""A model is wrapped on a stream that is used once, with 20 GiB of temporaries; training then
goes on the usual stream.
https://github.com/NVIDIA/Megatron-LM/pull/6885

Device: memory:80GiB,kernel_us:20,oracle:true
"""
import torch
from common import GIB, block, say_held, use

weights = [block(GIB) for _ in range(30)]
once = torch.cuda.Stream()
once.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(once):
    temporaries = [block(GIB) for _ in range(20)]
    use(*temporaries)
    del temporaries
torch.cuda.current_stream().wait_stream(once)
for _ in range(5):
    activations = [block(GIB) for _ in range(22)]
    use(*activations)
    del activations
say_held()
