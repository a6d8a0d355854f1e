"""Trains on texts of varying lengths where there is hardly more memory than that takes.

    tight.py native|expandable|plugin|compiled [NAME]

The same steps are taken on the whole device, which tells their peak; again from the start with
other memory taken until so many times the peak is left, which came *later* than the first look at
the device; and in fresh processes, with the other memory there *before*. Prints a row for each:
losses bit by bit, step times, steps refused for lack of memory, and what was held. A refused step
is passed over.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import statistics
import subprocess
import sys

from cuda import MIB, tell
from train import begin, model, said, step, used_by_nvml

STEPS = 40
LENGTHS = 100, 1000
#: What is left, over the peak; last where only what remaps can serve.
ROOM = (1.2, 1.05, 1.02)
ROOM_BEFORE = (1.05, 1.02)


def take(size: int) -> None:
    """Takes memory by the driver, until the end: no allocator of PyTorch's knows of it."""
    address = ctypes.c_uint64()
    code = ctypes.CDLL("libcuda.so.1").cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    if code:
        raise RuntimeError(f"cuMemAlloc of {size} bytes returned {code}")


def leave(wanted: int) -> None:
    """Takes memory until PyTorch, with what it holds now, can have so much."""
    import torch
    gc.collect()
    torch.cuda.empty_cache()
    if (spare := torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - wanted) > 0:
        take(spare)


def beside() -> int:
    """What is in use beside what PyTorch's allocator holds: contexts, code, and others."""
    import torch
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def trained(gpt, optimizer) -> dict[str, object]:
    """The same texts in the same order, each time."""
    import torch
    before = torch.cuda.memory_stats().get("num_alloc_retries", 0)
    lengths, texts = random.Random(3), torch.Generator().manual_seed(4)
    losses, times, refused = [], [], 0
    for _ in range(STEPS):
        length = lengths.randint(*LENGTHS)
        try:
            loss, took = step(gpt, optimizer, length, texts)
        except torch.OutOfMemoryError:
            # The step goes no further: what it made goes with its frame.
            loss, took, refused = "refused", 0.0, refused + 1
            optimizer.zero_grad()
        losses.append(loss)
        times.append(took)
    return {
        "losses": losses,
        "steps refused": refused,
        "step ms": round(statistics.median(times[1:]), 3),
        "worst later step ms": round(max(times[1:]), 3),
        "all steps ms": round(sum(times), 1),
        "retries": torch.cuda.memory_stats().get("num_alloc_retries", 0) - before,
        "allocated MiB, peak": torch.cuda.max_memory_allocated() // MIB,
        "reserved MiB, peak": torch.cuda.max_memory_reserved() // MIB,
        "beside MiB": beside() // MIB,
        "in use MiB, by NVML": used_by_nvml(),
    }


def row(gpt, weights, wanted: int | None, **about: object) -> dict[str, object]:
    """From the start; with so much memory left, if that is told."""
    import torch
    gpt.load_state_dict(weights)
    torch.cuda.reset_peak_memory_stats()
    if wanted:
        leave(wanted)
    answer = said(lambda: trained(gpt, torch.optim.AdamW(gpt.parameters(), lr=1e-4)))
    found = answer if isinstance(answer, dict) else {"training": answer}
    tell({**about, **found})
    return found


def measure(script: list[str], room: float | None, peak: int, used: int) -> int:
    """The rows of one process: with a room, the one where others were there before."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    route = begin(script)
    import torch
    torch.use_deterministic_algorithms(True, warn_only=True)
    way = {"route": " ".join([route, *script[1:]]), "device": torch.cuda.get_device_name(0)}
    if room:
        take(torch.cuda.mem_get_info()[1] - used * MIB - int(peak * room) * MIB)
    gpt = model(LENGTHS[1])
    weights = {name: weight.cpu() for name, weight in gpt.state_dict().items()}
    if room:
        return "training" in row(gpt, weights, None, **way, room=room, others="before")
    found = row(gpt, weights, None, **way, room="all", others="none")
    if "training" in found:
        return 1
    peak = found["allocated MiB, peak"]
    for room in ROOM:
        row(gpt, weights, int(peak * room) * MIB, **way, room=room, others="later")
    return 0


def child(*arguments: object) -> tuple[int, list[dict[str, object]]]:
    """Its end and its rows, which are passed on."""
    process = subprocess.Popen([sys.executable, "-B", __file__, *map(str, arguments)],
                               stdout=subprocess.PIPE, text=True)
    rows = []
    for line in process.stdout:
        print(line, end="", flush=True)
        rows += [json.loads(line)] if line.startswith("{") else []
    return process.wait(), rows


def main() -> int:
    script = sys.argv[1:]
    if "--" in script:
        at = script.index("--")
        numbers = [float(one) for one in script[at + 1:]]
        room, peak, used = numbers if numbers else (None, 0, 0)
        return measure(script[:at], room, int(peak), int(used))
    code, rows = child(*script, "--")
    first = rows[0] if rows else {}
    if "allocated MiB, peak" in first:
        for room in ROOM_BEFORE:
            ended, _ = child(*script, "--", room, first["allocated MiB, peak"], first["beside MiB"])
            code = code or ended
    return code


if __name__ == "__main__":
    sys.exit(main())
