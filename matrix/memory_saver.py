"""`torch_memory_saver`, as SGLang and RL trainers use it, refuses expandable segments. Passes if
what it pauses is freed, and comes back to its addresses.
https://github.com/NVIDIA-NeMo/RL/issues/2319

Device: memory:8GiB,oracle:true
"""
import os
import sys

import torch
from common import GIB, MIB, block, held, judged, need_pools

need_pools()
with judged():
    from torch_memory_saver import configure_subprocess, torch_memory_saver
    if "torch_memory_saver" not in os.environ.get("LD_PRELOAD", ""):
        # Its library must be there before any other.
        with configure_subprocess():
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    torch_memory_saver.hook_mode = "preload"
    with torch_memory_saver.region():
        paused = [torch.empty(512 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
    addresses = [one.data_ptr() for one in paused]
    for _ in range(5):
        awake = held(peak=False)
        torch_memory_saver.pause()
        freed = awake - held(peak=False)
        assert freed >= 2 * GIB, f"a pause frees {freed / MIB:.0f} of 2048 MiB"
        del (work := [block(700 * MIB) for _ in range(8)])[:]
        torch.cuda.empty_cache()
        torch_memory_saver.resume()
        for one in paused:
            one.add_(1)
        assert addresses == [one.data_ptr() for one in paused], "weights lie elsewhere"
