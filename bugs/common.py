"""What the programs of this folder share: blocks, and the one line that each ends with.

A program says what it came to: memory held on the device at most, refused requests, a length. And
what is right: what the program had in use, none, the whole. `cargo xtask bugs` reads the line.
"""

from __future__ import annotations

import ctypes
import sys

import torch

MIB = 1 << 20
GIB = 1 << 30


def block(size: float) -> torch.Tensor:
    """So many bytes of the device."""
    return torch.empty(int(size), dtype=torch.uint8, device="cuda")


def use(*blocks: torch.Tensor) -> None:
    """A kernel on the current stream over each."""
    for one in blocks:
        one.add_(1)


def held(peak: bool = True) -> int:
    """Bytes held of the device, at most or now: by the simulated device's word, which counts what
    PyTorch does not, such as the memory of graphs under `cudaMallocAsync`."""
    driver = ctypes.CDLL("libcuda.so.1")
    name = "simcuda_peak_physical_bytes" if peak else "simcuda_physical_bytes"
    if not hasattr(driver, name):
        return torch.cuda.max_memory_reserved() if peak else torch.cuda.memory_reserved()
    count = getattr(driver, name)
    count.restype = ctypes.c_uint64
    return count(0)


def is_served(size: float) -> bool:
    """Whether a request is served; what it gets is freed."""
    try:
        block(size)
    except torch.cuda.OutOfMemoryError:
        return False
    return True


def say(came_to: str, right: str) -> None:
    """The last line; what was done wrong on a simulated device stands in the place of the rest."""
    driver = ctypes.CDLL("libcuda.so.1")
    if hasattr(driver, "simcuda_violation_count"):
        driver.simcuda_violation_count.restype = ctypes.c_uint64
        if count := driver.simcuda_violation_count(0):
            came_to = f"{count} violations"
    print(f"came to: {came_to}; right: {right}", flush=True)


def say_held() -> None:
    """The most that was held, against the most in use."""
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    say(f"{held() / GIB:.2f} GiB", f"{peak / GIB:.2f} GiB")


def say_refused(count: int) -> None:
    """Requests that were refused; the programs make none that cannot be served."""
    say(f"{count} refused", "0 refused")


def need_graphs() -> None:
    """Ends the program where graphs have memory of the driver's. How several share it is not
    modelled on the simulated device."""
    is_simulated = hasattr(ctypes.CDLL("libcuda.so.1"), "simcuda_physical_bytes")
    if is_simulated and torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        say("not modelled", "")
        sys.exit(0)


def need_pools() -> None:
    """Ends the program where there is no `MemPool`."""
    if torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        say("no pools", "")
        sys.exit(0)
