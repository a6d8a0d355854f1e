"""A program for both allocators: prints PyTorch's statistics, and those of all keys, as JSON."""

import gc
import json
import sys

import torch
from torch import nn


def train() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 32 * 32, 300), nn.GELU(), nn.Linear(300, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(6):
        batch = torch.randn(8 + step, 3, 32, 32, device="cuda")
        loss = nn.functional.cross_entropy(
            model(batch), torch.zeros(len(batch), dtype=torch.long, device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def history() -> list[list[object]]:
    """What a training step asks for, with the names of who asks."""
    torch.cuda.memory._record_memory_history(stacks="python")
    train()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kept = torch.empty(700, device="cuda")
    kept.record_stream(torch.cuda.default_stream())
    del kept
    gc.collect()
    torch.cuda.synchronize()
    del side
    found = torch.cuda.memory._snapshot()["device_traces"][0]
    # A free is completed at some later call, and when, no program can tell.
    return [[one["action"], one["size"], one["stream"] != 0, [f["name"] for f in one["frames"]]]
            for one in found if one["action"] in ("alloc", "free_requested")]


def main() -> None:
    kept = [torch.empty(size, dtype=torch.uint8, device="cuda")
            for size in (1, 511, 513, 1 << 20, (1 << 20) + 1, 5 << 20, 30 << 20)]
    train()
    del kept[::2]
    gc.collect()
    torch.cuda.synchronize()
    figures = {"end": torch.cuda.memory_stats()}
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    figures["reset"] = torch.cuda.memory_stats()
    again = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    del again
    figures["after"] = torch.cuda.memory_stats()
    # Before 2.9 it has none.
    accelerator = getattr(torch.accelerator, "memory_stats", torch.cuda.memory_stats)
    figures["accelerator"] = accelerator()
    figures["snapshot"] = {
        "top": sorted(torch.cuda.memory._snapshot()),
        "segment": sorted(torch.cuda.memory_snapshot()[0]),
        "block": sorted(torch.cuda.memory_snapshot()[0]["blocks"][0]),
    }
    figures["backend"] = torch.cuda.get_allocator_backend()
    if figures["backend"] != "pluggable":
        figures["history"] = history()
    print(json.dumps(figures))


if __name__ == "__main__":
    sys.exit(main())
