"""What the programs of `bugs` and `matrix` share: blocks, and the one line that each ends with.

A program says what it came to: memory held on the device at most, refused requests, a length, or
whether it passed. And what is right: what the program had in use, none, the whole. `cargo xtask
bugs` and `matrix` read the line.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator

import torch

MIB = 1 << 20
GIB = 1 << 30
_driver = ctypes.CDLL("libcuda.so.1")
is_simulated = hasattr(_driver, "simcuda_physical_bytes")
for _name in ("physical_bytes", "peak_physical_bytes", "violation_count"):
    if is_simulated:
        getattr(_driver, "simcuda_" + _name).restype = ctypes.c_uint64


def block(size: float) -> torch.Tensor:
    """So many bytes of the device. A simulated one is told, and watches that nobody else gets them
    before their last use: but for those of a graph, which it cannot know while it is captured."""
    one = torch.empty(int(size), dtype=torch.uint8, device="cuda")
    if is_simulated and not torch.cuda.is_current_stream_capturing():
        address, stream = ctypes.c_uint64(one.data_ptr()), _stream()
        _driver.simcuda_check_alloc(0, address, ctypes.c_uint64(one.numel()), stream)
        weakref.finalize(one, _driver.simcuda_check_free, 0, address)
    return one


def use(*blocks: torch.Tensor) -> None:
    """A kernel on the current stream over each."""
    for one in blocks:
        one.add_(1)
        if is_simulated and not torch.cuda.is_current_stream_capturing():
            _driver.simcuda_check_use(0, ctypes.c_uint64(one.data_ptr()), _stream())


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def held(peak: bool = True) -> int:
    """Bytes held of the device, at most or now: by the simulated device's word, which counts what
    PyTorch does not, such as the memory of graphs under `cudaMallocAsync`."""
    if not is_simulated:
        return torch.cuda.max_memory_reserved() if peak else torch.cuda.memory_reserved()
    if peak:
        return _driver.simcuda_peak_physical_bytes(0)
    return _driver.simcuda_physical_bytes(0)


def is_served(size: float) -> bool:
    """Whether a request is served; what it gets is freed."""
    try:
        block(size)
    except torch.cuda.OutOfMemoryError:
        return False
    return True


def say(came_to: str, right: str) -> None:
    """The last line; what was done wrong on a simulated device stands in the place of the rest."""
    if is_simulated and (count := _driver.simcuda_violation_count(0)):
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


@contextlib.contextmanager
def judged() -> Iterator[list[int]]:
    """Says whether what it holds passes, what was held at most, and what was in use: of processes
    that it starts as it says itself, in bytes. A reason why not goes to standard error."""
    told: list[int] = []
    try:
        yield told
        torch.cuda.synchronize()
        verdict = "pass"
        if "DRYSTONE_ENABLE" in os.environ:
            import drystone
            assert drystone.is_enabled(), "Drystone does not serve"
    except Exception as error:
        first = (str(error) or repr(error)).splitlines()[0]
        print(f"fail: {type(error).__name__}: {first}", file=sys.stderr)
        verdict = "fail"
    if is_simulated and (count := _driver.simcuda_violation_count(0)):
        print(f"fail: {count} violations", file=sys.stderr)
        verdict = "fail"
    most, in_use = told or (held(), torch.cuda.max_memory_allocated())
    print(f"came to: {verdict} {most / MIB:.0f}; right: {in_use / MIB:.0f}", flush=True)
    sys.exit(verdict != "pass")


def fault(function: str, error: int, nth: int = 1, for_ever: bool = False) -> None:
    """The simulated driver fails at a call of a function; none is spared on a real one."""
    if is_simulated:
        _driver.simcuda_fail(0, function.encode(), ctypes.c_uint64(nth), for_ever, error)


def driver(function: str, *arguments: object) -> None:
    """A call of CUDA's driver that has to work."""
    status = getattr(_driver, function)(*arguments)
    if status != 0:
        raise RuntimeError(f"{function} returned {status}")


def another(*arguments: str) -> subprocess.Popen[str]:
    """This program once more, with arguments."""
    command = [sys.executable, sys.argv[0], *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def need_graphs() -> None:
    """Ends the program where graphs have memory of the driver's. How several share it is not
    modelled on the simulated device."""
    if is_simulated and torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        say("not modelled", "")
        sys.exit(0)


def need_pools() -> None:
    """Ends the program where there is no `MemPool`."""
    if torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        say("no pools", "")
        sys.exit(0)
