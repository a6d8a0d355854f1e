"""One rank of two: meets the other, reduces once on its own device, counts."""

import torch
import torch.distributed as dist

import simulated

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
part = torch.ones(1024, device="cuda")
dist.all_reduce(part)
torch.cuda.synchronize()
reductions = simulated.counted("ncclAllReduce")
print(f"rank {rank} of {dist.get_world_size()}: {reductions} reductions", flush=True)
dist.destroy_process_group()
