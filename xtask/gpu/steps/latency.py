"""How long a launch takes in one thread while another maps and unmaps, and how long that takes
while the engines that copy are busy.

The interpreter's lock distorts small figures: the row beside a thread that calls nothing of CUDA
says by how much. Times are microseconds of one launch. Two rows more are of the device: what a
kernel takes that follows another in its stream, and in another stream that waits for an event.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable

from cuda import MIB, Address, Cuda, spread, tell

LAUNCHES = 5000
#: Few enough that the queue takes them all.
CHAIN = 250
KERNEL = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry nothing() { ret; }
"""
LIBC = ctypes.CDLL(None)


def mapping(cuda: Cuda) -> Callable[[], None]:
    size = 2 * MIB
    start = cuda.reserve(size)

    def once() -> None:
        handle, _ = cuda.create(size)
        cuda.map(start, size, handle)
        cuda.set_access(start, size)
        cuda.unmap(start, size)
        cuda.release(handle)

    return once


def copying(cuda: Cuda) -> Callable[[], None]:
    host, device, stream = ctypes.c_void_p(), Address(), cuda.stream()
    size = ctypes.c_size_t(32 * MIB)
    cuda("cuMemAllocHost_v2", ctypes.byref(host), size)
    cuda("cuMemAlloc_v2", ctypes.byref(device), size)

    def once() -> None:
        cuda("cuMemcpyHtoDAsync_v2", device, host, size, stream)
        cuda("cuStreamSynchronize", stream)

    return once


def row(cuda: Cuda, name: str, beside: list[Callable[[], None]],
        launch: Callable[[], float]) -> dict[str, object]:
    is_over = threading.Event()
    rounds: list[list[float]] = [[] for _ in beside]

    def body(index: int) -> None:
        cuda.enter()
        while not is_over.is_set():
            start = time.perf_counter()
            beside[index]()
            rounds[index].append((time.perf_counter() - start) * 1e6)

    threads = [threading.Thread(target=body, args=(index,)) for index in range(len(beside))]
    for thread in threads:
        thread.start()
    times = [launch() for _ in range(LAUNCHES)]
    is_over.set()
    for thread in threads:
        thread.join()
    # Of the first alone: mapping takes its turn at the engines that copy.
    there = spread(rounds[0], "a round there") if rounds and rounds[0] else {}
    return {"beside": name, "rounds there": sum(map(len, rounds)), **spread(times, "launch"),
            **there}


def handed_over(cuda: Cuda, function: ctypes.c_void_p, streams: list[ctypes.c_void_p]) -> float:
    """Microseconds of the device for each of many kernels that go to streams in turn."""
    begun, ended, passed, took = cuda.event(), cuda.event(), cuda.event(2), ctypes.c_float()
    cuda("cuEventRecord", begun, streams[0])
    for number in range(CHAIN):
        stream = streams[number % len(streams)]
        if len(streams) > 1:
            cuda("cuStreamWaitEvent", stream, passed if number else begun, 0)
        cuda("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
        if len(streams) > 1:
            cuda("cuEventRecord", passed, stream)
    cuda("cuEventRecord", ended, streams[(CHAIN - 1) % len(streams)])
    cuda("cuEventSynchronize", ended)
    cuda("cuEventElapsedTime", ctypes.byref(took), begun, ended)
    return round(took.value * 1e3 / CHAIN, 2)


def main() -> None:
    sys.setswitchinterval(1e-5)
    cuda = Cuda()
    module, function, stream = ctypes.c_void_p(), ctypes.c_void_p(), cuda.stream()
    cuda("cuModuleLoadData", ctypes.byref(module), KERNEL)
    cuda("cuModuleGetFunction", ctypes.byref(function), module, b"nothing")
    launched = 0

    def launch() -> float:
        nonlocal launched
        took = cuda.timed("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
        launched += 1
        # A queue that is full blocks by itself.
        if launched % 256 == 0:
            cuda("cuStreamSynchronize", stream)
        return took

    maps, copies = mapping(cuda), copying(cuda)
    for name, beside in (
        ("nothing", []), ("a thread without CUDA", [LIBC.getppid]), ("mapping", [maps]),
        ("copies to the device", [copies]), ("mapping, and copies to the device", [maps, copies]),
    ):
        tell(row(cuda, name, beside, launch))
    for name, streams in (("one stream", [stream]), ("two streams", [stream, cuda.stream()])):
        handed_over(cuda, function, streams)
        tell({"kernels in a row": name, "us each": handed_over(cuda, function, streams)})


if __name__ == "__main__":
    main()
