"""How fast memory of different making is copied and filled: GB/s, as the device's events tell.

Prints a row for memory of one piece, of large handles in order, and of granules in no order.
"""

from __future__ import annotations

import ctypes
import random

from cuda import MIB, Address, Cuda, tell

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


def speed(cuda: Cuda, total: int, name: str, *arguments: object) -> float:
    """Bytes of the memory that the call goes through in a nanosecond."""
    first, last, took = cuda.event(), cuda.event(), ctypes.c_float()
    cuda(name, *arguments)
    cuda("cuEventRecord", first, None)
    for _ in range(REPEATS):
        cuda(name, *arguments)
    cuda("cuEventRecord", last, None)
    cuda("cuEventSynchronize", last)
    cuda("cuEventElapsedTime", ctypes.byref(took), first, last)
    return round(total * REPEATS / max(took.value, 1e-6) / 1e6, 1)


def row(cuda: Cuda, name: str, start: int, total: int) -> dict[str, object]:
    half = total // 2
    return {
        "memory": name,
        "GiB": total >> 30,
        "filled": speed(cuda, total, "cuMemsetD32_v2", Address(start), ctypes.c_uint(7),
                        ctypes.c_size_t(total // 4)),
        "copied": speed(cuda, total, "cuMemcpyDtoD_v2", Address(start + half), Address(start),
                        ctypes.c_size_t(half)),
    }


def main() -> None:
    cuda = Cuda()
    # A multiple of every size of handle, and what fits four times.
    unit = 40 * MIB
    total = min(10 << 30, cuda.free_bytes() // 5) // unit * unit
    plain = Address()
    cuda("cuMemAlloc_v2", ctypes.byref(plain), ctypes.c_size_t(total))
    kinds = {"handles of 20 MiB, in order": (20 * MIB, True),
             "handles of 2 MiB, in order": (2 * MIB, True),
             "handles of 2 MiB, in no order": (2 * MIB, False)}
    tell(row(cuda, "cuMemAlloc", plain.value, total))
    for name, (size, in_order) in kinds.items():
        tell(row(cuda, name, mapped(cuda, total, size, in_order), total))


if __name__ == "__main__":
    main()
