"""What programs of frameworks hold under each allocator: a row for each.

    compare_frameworks.py [NAME ...]

`frameworks.py` has the programs; each runs in a process of its own. Ends with 0 where each ran
under every allocator, was refused nothing, and PyTorch's statistics of what was asked for agree,
key for key. The table is that of `docs/use/frameworks.md`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("frameworks.py")
# A name, what the environment has, and how Python is started.
ALLOCATORS = (
    ("PyTorch's own", {}, ()),
    ("expandable segments", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, ()),
    ("Drystone, compiled", {}, ("-m", "drystone", "--route", "compiled")),
)
NAMES = ("transformers", "accelerate", "lightning", "trl", "deepspeed", "torchtune", "peft",
         "diffusers", "ddp", "fsdp2", "two_devices", "compile_default", "compile_reduce_overhead",
         "compile_max_autotune", "saver_torch", "saver_preload")
# Torch_memory_saver refuses expandable segments by a name of its own.
LEFT_OUT = {("saver_torch", "expandable segments"), ("saver_preload", "expandable segments")}
RANKS = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
# What other streams use is requested until an allocator sees that they are done, and threads of
# gloo's free when they do: of these programs the counts in all are compared alone.
AWAITED = {"ddp", "fsdp2"}
DEVICE = "memory:8GiB"
# Ranks and models on two devices send each other what they compute with. Kernels that are tuned
# must take time.
DEVICES = {
    "ddp": f"{DEVICE},devices:2,backing:true",
    "fsdp2": f"{DEVICE},devices:2,backing:true",
    "two_devices": f"{DEVICE},devices:2",
    "compile_max_autotune": f"{DEVICE},kernel_us:20",
}
PROGRAM_S = 600
# How that begins which a process says of itself; frameworks write others.
MARK = '{"framework"'


class Failed(Exception):
    """A program did not run to its end, or was told otherwise than under PyTorch's allocator."""


def told(name: str, changes: dict[str, str], start: tuple[str, ...]) -> list[dict[str, Any]]:
    """What a program's processes say of themselves, under one allocator."""
    ranks = RANKS if name in ("ddp", "fsdp2") else ()
    environment = {**os.environ, **changes, "SIMCUDA_CONF": DEVICES.get(name, DEVICE)}
    done = subprocess.run(
        [sys.executable, "-B", *start, *ranks, str(PROGRAM), name], env=environment,
        capture_output=True, text=True, timeout=PROGRAM_S)
    # Ranks write into one pipe: a line's end may come behind the next one's line.
    starts = re.finditer(re.escape(MARK), done.stdout)
    found = [json.JSONDecoder().raw_decode(done.stdout, at.start())[0] for at in starts]
    if done.returncode or not found:
        why = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise Failed(f"{name} ended with {done.returncode}: {''.join(why)}")
    return found


def row(name: str) -> str:
    """A line of the table."""
    first: list[dict[str, Any]] = []
    cells = []
    if name.startswith("compile"):
        # What is compiled and tuned is kept, and takes memory while it is.
        told(name, {}, ())
    for allocator, changes, start in ALLOCATORS:
        if (name, allocator) in LEFT_OUT:
            cells.append("-")
            continue
        found = told(name, changes, start)
        first = first or found
        for one, native in zip(found, first, strict=True):
            check(name, allocator, one, native)
        worst = max(found, key=lambda one: one["reserved_mib"])
        cells.append(f"{worst['reserved_mib']:.0f}; {worst['driver_ms']:.1f} ms" + (
            f"; {worst['freed_mib']} freed" if "freed_mib" in worst else ""))
    head = max(first, key=lambda one: one["requested_mib"])
    return f"| {name} | {head['version']} | {head['requested_mib']:.0f} | {' | '.join(cells)} |"


def check(name: str, allocator: str, one: dict[str, Any], native: dict[str, Any]) -> None:
    """Fails if a run was refused memory, or its statistics differ."""
    paused, freed, most = (figures.get(key, 0) for figures, key in (
        (one, "paused_mib"), (one, "freed_mib"), (native, "freed_mib")))
    if one["refused"] or not paused <= freed <= most:
        raise Failed(f"{name}, {allocator}: {one['refused']} refused; freed, in MiB: {freed} of "
                     f"{paused} that were paused, {most} with PyTorch's own")
    compared = ".allocated" if name in AWAITED else ""
    differ = sorted(key for key, value in native["asked"].items()
                    if one["asked"][key] != value and key.endswith(compared))
    if differ:
        texts = (f"{key} {one['asked'][key]}, {native['asked'][key]}" for key in differ)
        raise Failed(f"{name}, {allocator}, and PyTorch's own differ: {'; '.join(texts)}")


def main(names: list[str]) -> int:
    """The table."""
    if unknown := [name for name in names if name not in NAMES]:
        sys.exit(f"no program is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    print("| program | version | requested, MiB | "
          + " | ".join(name for name, *_ in ALLOCATORS) + " |\n" + "| --- " * 6 + "|", flush=True)
    failed = 0
    for name in names or NAMES:
        try:
            print(row(name), flush=True)
        except (Failed, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"| {name} | failed: {error} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
