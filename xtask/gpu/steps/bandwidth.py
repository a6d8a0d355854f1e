"""How fast memory of different making is copied, filled and read at random: GB/s, as the device's
events tell. Random reads are of 4 bytes each, and what they wait for is the page tables.

Prints a row for memory of one piece, of large handles in order, and of granules in no order.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable

from cuda import MIB, Address, Cuda, tell
from kernels import GATHER as GATHER_TEXT
from kernels import HEAD, Kernels, counter

REPEATS = 10


def mapped(cuda: Cuda, total: int, size: int, in_order: bool) -> int:
    count = total // size
    start = cuda.reserve(count * size)
    places = list(range(count))
    if not in_order:
        random.Random(1).shuffle(places)
    for place in places:
        handle, _ = cuda.create(size)
        cuda.map(start + place * size, size, handle)
        cuda.set_access(start + place * size, size)
        cuda.release(handle)  # stays until it is unmapped
    return start


def speed(cuda: Cuda, total: int, queue: Callable[[], None]) -> float:
    """Bytes in a nanosecond, of the work that is queued."""
    first, last, took = cuda.event(), cuda.event(), ctypes.c_float()
    queue()
    cuda("cuEventRecord", first, None)
    for _ in range(REPEATS):
        queue()
    cuda("cuEventRecord", last, None)
    cuda("cuEventSynchronize", last)
    cuda("cuEventElapsedTime", ctypes.byref(took), first, last)
    return round(total * REPEATS / max(took.value, 1e-6) / 1e6, 1)


#: Groups, threads of each, and reads of each thread.
GATHER = 1056, 256, 512


def gathered(cuda: Cuda, kernels: Kernels, sink: Address, start: int, total: int) -> float:
    """Bytes read at random in a nanosecond, from the largest power of two of it."""
    groups, threads, rounds = GATHER
    within = 1 << (total // 4).bit_length() - 1
    arguments = (Address(start), ctypes.c_uint64(within), ctypes.c_uint(rounds), sink)

    def launch() -> None:
        kernels.launch("gather", None, *arguments, groups=groups, threads=threads)

    return speed(cuda, 4 * groups * threads * rounds, launch)


def row(cuda: Cuda, kernels: Kernels, name: str, start: int, total: int) -> dict[str, object]:
    half, sink = total // 2, counter(cuda)

    def fill() -> None:
        cuda("cuMemsetD32Async", Address(start), ctypes.c_uint(7), ctypes.c_size_t(total // 4),
             None)

    def copy() -> None:
        cuda("cuMemcpyDtoDAsync_v2", Address(start + half), Address(start), ctypes.c_size_t(half),
             None)

    return {
        "memory": name,
        "GiB": round(total / (1 << 30), 2),
        "filled": speed(cuda, total, fill),
        "copied": speed(cuda, total, copy),
        "read at random": gathered(cuda, kernels, sink, start, total),
    }


def main() -> None:
    cuda = Cuda()
    # A multiple of every size of handle, and what fits five times.
    unit = 640 * MIB
    total = max(1, min(10 << 30, cuda.free_bytes() // 6) // unit) * unit
    plain = Address()
    cuda("cuMemAlloc_v2", ctypes.byref(plain), ctypes.c_size_t(total))
    kinds = {"handles of 128 MiB, in order": (128 * MIB, True),
             "handles of 20 MiB, in order": (20 * MIB, True),
             "handles of 2 MiB, in order": (2 * MIB, True),
             "handles of 2 MiB, in no order": (2 * MIB, False)}
    kernels = Kernels(cuda, HEAD + GATHER_TEXT)
    tell(row(cuda, kernels, "cuMemAlloc", plain.value, total))
    for name, (size, in_order) in kinds.items():
        tell(row(cuda, kernels, name, mapped(cuda, total, size, in_order), total))


if __name__ == "__main__":
    main()
