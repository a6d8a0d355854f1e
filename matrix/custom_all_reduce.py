"""vLLM's own `CustomAllreduce` on two ranks, eager and in CUDA graphs: it sends legacy IPC handles
of buffers that a graph captured, which the driver refuses for mapped memory. Passes if both ranks
register, replay and end.
https://github.com/vllm-project/vllm/issues/42609

Device: memory:4GiB,devices:2,shared:FILE
"""
import datetime
import os
import sys
import tempfile

import torch
import torch.distributed
from common import MIB, another, judged, need_graphs


def rank(number, store):
    """One of two."""
    os.environ["VLLM_SKIP_P2P_CHECK"] = "1"
    from vllm.distributed.device_communicators.custom_all_reduce import CustomAllreduce
    torch.cuda.set_device(number)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=number, world_size=2,
        timeout=datetime.timedelta(seconds=60))
    reduce = CustomAllreduce(torch.distributed.group.WORLD, number)
    assert not reduce.disabled, "it disabled itself"
    hidden = torch.empty(MIB, dtype=torch.float16, device="cuda")
    reduce.custom_all_reduce(hidden)
    graphs, pool = [], None
    with reduce.capture():
        for size in (1024, 512, 256):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                reduce.custom_all_reduce(hidden[:size * 512] * 2)
            graphs.append(graph)
            pool = pool or graph.pool()
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    torch.distributed.barrier()


need_graphs()
with judged():
    if sys.argv[1:]:
        other = None
        number, store = 1, sys.argv[1]
    else:
        number, store = 0, tempfile.mktemp()
        other = another(store)
    rank(number, store)
    if other:
        said, _ = other.communicate(timeout=60)
        assert other.returncode == 0, f"the other rank: {said.strip()}"
