"""Where the device ends: addresses of one handle, mappings, launches in a queue, memory; and what
asking for free memory takes.

Prints a row for each limit: how far it went, and whether something refused to go on.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator

from cuda import MIB, Cuda, CudaError, spread, tell
from latency import KERNEL

#: What is tried at most, and for how long.
ADDRESSES = 70_000
MAPPINGS = 520_000
ALIASES = 64
LAUNCHES = 5000
SECONDS = 40.0
#: Handles that memory is taken in, as long as there is any for one; the last is the least.
HANDLES = (256 * MIB, 32 * MIB, 2 * MIB)
#: Longer than that much launching takes: a launch that took longer waited for the device.
BLOCKED_US = 20_000.0
KERNEL_NS = 200_000_000


def gone_as_far(limit: str, steps: Iterator[int]) -> None:
    reached, refused, said = 0, False, ""
    end = time.monotonic() + SECONDS
    try:
        for reached in steps:  # noqa: B007
            if time.monotonic() > end:
                said = f"ended after {SECONDS} s"
                break
    except CudaError as error:
        # Memory or addresses that ran out before are another limit.
        refused = reached > 0 and error.name not in ("cuMemCreate", "cuMemAddressReserve")
        said = str(error)
    tell({"limit": limit, "reached": reached, "refused": refused, "said": said})


def mapped(cuda: Cuda, most: int, aliases: int) -> Iterator[int]:
    """Maps so often, each handle so many times; unmaps all at the end, refused or not."""
    size, done = 2 * MIB, 0
    start = cuda.reserve(most * size)
    try:
        while done < most:
            handle, _ = cuda.create(size)
            try:
                for _ in range(min(aliases, most - done)):
                    cuda.map(start + done * size, size, handle)
                    done += 1
                    cuda.set_access(start + (done - 1) * size, size)
                    yield done
            finally:
                cuda.release(handle)  # stays until it is unmapped
    finally:
        if done:
            cuda.unmap(start, done * size)
        cuda.release_addresses(start, most * size)


def tell_withheld(cuda: Cuda) -> None:
    """What the device says is free when it refuses the least handle. Others may take it, too."""
    held, said = [], ""
    for size in HANDLES:
        try:
            while True:
                held.append(cuda.create(size)[0])
        except CudaError as error:
            said = str(error)
    free = cuda.free_bytes()
    for handle in held:
        cuda.release(handle)
    tell({"limit": "free memory that is refused", "reached": free, "refused": True, "said": said})


def spinning(cuda: Cuda) -> Iterator[int]:
    """Launches behind a kernel that runs for long, until one of them waits."""
    module, function, stream = ctypes.c_void_p(), ctypes.c_void_p(), cuda.stream()
    cuda("cuModuleLoadData", ctypes.byref(module), SPIN)
    cuda("cuModuleGetFunction", ctypes.byref(function), module, b"spin")
    duration = ctypes.c_uint64(KERNEL_NS)
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(duration), ctypes.c_void_p))
    cuda("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None)
    cuda("cuModuleLoadData", ctypes.byref(module), KERNEL)
    cuda("cuModuleGetFunction", ctypes.byref(function), module, b"nothing")
    for done in range(LAUNCHES):
        took = cuda.timed("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
        if took > BLOCKED_US:
            cuda("cuStreamSynchronize", stream)
            raise CudaError("a launch that waited", 0)
        yield done + 1
    cuda("cuStreamSynchronize", stream)


SPIN = b""".version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 duration) {
  .reg .u64 %rd<4>; .reg .pred %p;
  ld.param.u64 %rd1, [duration]; mov.u64 %rd2, %globaltimer; add.u64 %rd2, %rd2, %rd1;
next: mov.u64 %rd3, %globaltimer;
  setp.lt.u64 %p, %rd3, %rd2;
  @%p bra next;
  ret;
}
"""


def main() -> None:
    cuda = Cuda()
    times = []
    for _ in range(200):
        start = time.perf_counter()
        cuda.free_bytes()
        times.append((time.perf_counter() - start) * 1e6)
    tell({"call": "cuMemGetInfo", **spread(times, "us")})
    tell_withheld(cuda)
    gone_as_far("launches in a queue", spinning(cuda))
    gone_as_far("addresses of one handle", mapped(cuda, ADDRESSES, ADDRESSES))
    gone_as_far("mappings with access", mapped(cuda, MAPPINGS, ALIASES))


if __name__ == "__main__":
    main()
