"""What can be had of a device, in one number.

Lives here: what `drystone.available` does, what `torch.cuda.mem_get_info` counts by an option, and
other processes on the device, in words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from types import ModuleType

from . import _figures
from ._figures import Tree, text_of_bytes
from ._library import check, library, stats


def available(device: int | None) -> int:
    """See `drystone.available`."""
    import torch
    if device is None:
        device = torch.cuda.current_device()
    _figures.route()
    found = ctypes.c_size_t()
    check(library().drystone_available(device, ctypes.byref(found)))
    return found.value


def count_neighbours(torch: ModuleType) -> None:
    """`torch.cuda.mem_get_info` counts as free what other processes hold unused and would give.

    Not what is unused here: engines subtract what PyTorch has reserved from what is not free, to
    learn what others have, and PyTorch's statistics tell of it.
    """
    of_device = torch.cuda.mem_get_info

    def mem_get_info(device: object = None) -> tuple[int, int]:
        free, total = of_device(device)
        ordinal = torch.cuda._utils._get_device_index(device, optional=True)
        unused = sum(one["unused_bytes"] for one in stats(ordinal)["neighbours"]["others"])
        return min(free + unused, total), total

    mem_get_info.__doc__ = of_device.__doc__
    torch.cuda.mem_get_info = torch.cuda.memory.mem_get_info = mem_get_info
    if hasattr(torch._C, "_accelerator_getMemoryInfo"):
        torch._C._accelerator_getMemoryInfo = mem_get_info


def others(stats: Tree) -> Iterable[str]:
    """Who else is on the device, a sentence each."""
    for one in stats["neighbours"]["others"]:
        yield (f"process {one['process']} ({one['name']}) holds {text_of_bytes(one['held_bytes'])}, "
               f"{text_of_bytes(one['unused_bytes'])} of it unused")


def host(stats: Tree) -> Iterable[str]:
    """What is left to the host, of a device that has the host's memory, a sentence."""
    if stats["host_floor_bytes"]:
        yield f"{text_of_bytes(stats['host_floor_bytes'])} of the host's memory are left to it"


def exchanges(stats: Tree) -> Iterable[str]:
    """What went from and to others, and back to the device by itself."""
    neighbours = stats["neighbours"]
    for one in neighbours["last"]:
        way = "taken from" if one["is_taken"] else "given to"
        yield (f"{text_of_bytes(one['bytes'])} {way} process {one['process']} ({one['name']}) "
               f"in {one['microseconds'] / 1e3:.1f} ms")
    if neighbours["idle_bytes"]:
        yield f"{text_of_bytes(neighbours['idle_bytes'])} went back unused for long"
