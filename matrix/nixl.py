"""NIXL sends caches to another process by UCX: by CUDA IPC where that can open the memory, else
through the host, six hundred times slower. Between them memory is freed that UCX's registration
cache has. Passes if all arrives, and nothing went through the host.
https://github.com/ai-dynamo/nixl/issues/1754

Device: memory:16GiB,backing:true,shared:FILE
"""
import ctypes
import json
import random
import time

import torch
from common import MIB, is_simulated, judged
from nixl_cu13 import nixl_agent, nixl_agent_config

CACHES = 20


def caches(name):
    """Each with its agent, registered; others come and go between them."""
    torch.cuda.init()
    # Before there is memory: UCX learns of it as it is mapped.
    agent, live = nixl_agent(name, nixl_agent_config(backends=["UCX"])), []
    sizes = random.Random(3)
    for _ in range(CACHES):
        beside, size = (sizes.randrange(5, 130) * MIB for _ in range(2))
        live.append(torch.empty(beside, dtype=torch.uint8, device="cuda"))
        cache = torch.empty(size, dtype=torch.uint8, device="cuda")
        registered = agent.register_memory(cache)
        yield agent, cache
        agent.deregister_memory(registered)
        del cache
        while sum(one.numel() for one in live) > 400 * MIB:
            del live[sizes.randrange(len(live))]


def copied():
    """Bytes that this process had copied."""
    text = ctypes.create_string_buffer(1 << 20)
    ctypes.CDLL("libcuda.so.1").simcuda_stats_json(text, ctypes.c_uint64(len(text)))
    return json.loads(text.value)["functions"].get("cuMemcpyAsync", {"bytes": 0})["bytes"]


def other(line):
    for step, (agent, cache) in enumerate(caches("other")):
        before = copied() if is_simulated else 0
        places = agent.get_serialized_descs(agent.get_xfer_descs(cache))
        line.send((agent.get_agent_metadata(), places))
        line.recv()
        staged = copied() - before if is_simulated else 0
        line.send((bool((cache.cpu() == step + 1).all()), staged))
        line.recv()


if __name__ == "__main__":
    context = torch.multiprocessing.get_context("spawn")
    line, end = context.Pipe()
    context.Process(target=other, args=(end,), daemon=True).start()
    end.close()
    with judged() as told:
        for step, (agent, cache) in enumerate(caches("one")):
            cache.copy_(torch.full(cache.shape, step + 1, dtype=torch.uint8))
            torch.cuda.synchronize()
            metadata, places = line.recv()
            name = agent.add_remote_agent(metadata)
            mine, theirs = agent.get_xfer_descs(cache), agent.deserialize_descs(places)
            transfer = agent.initialize_xfer("WRITE", mine, theirs, name)
            state, began = agent.transfer(transfer), time.monotonic()
            while state == "PROC" and time.monotonic() < began + 60:
                state = agent.check_xfer_state(transfer)
            line.send(state)
            arrived, staged = line.recv()
            agent.release_xfer_handle(transfer)
            agent.remove_remote_agent(name)
            line.send(None)
            # The device counts what was opened of the other's, too.
            told[:] = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
            assert state == "DONE" and arrived, f"cache {step} did not arrive: {state}"
            assert staged == 0, f"{staged // MIB} MiB of cache {step} went through the host"
