"""What it costs to grow until a share of the device is mapped, by size of handle, and to create
memory anew right after all of it was released.

    growth.py [SHARE] [SECONDS FOR EACH SIZE]

Prints a row for each tenth of the way, and one of the way back. Times are microseconds of one call.
"""

from __future__ import annotations

import sys
import time

from cuda import MIB, Cuda, CudaError, spread, tell

#: First those that Drystone grows by, and PyTorch's own.
SIZES = (2, 64, 20, 256, 8)
#: Handles that are created again at most.
AGAIN = 2000


def grow(cuda: Cuda, size: int, share: float, seconds: float) -> None:
    count = max(10, int(cuda.free_bytes() * share) // size)
    start = cuda.reserve(count * size)
    handles, end = [], time.monotonic() + seconds
    ended = "at the share asked for"
    try:
        for tenth in range(10):
            create, mapped, access = [], [], []
            for index in range(count * tenth // 10, count * (tenth + 1) // 10):
                if time.monotonic() > end:
                    raise TimeoutError(f"after {seconds} s")
                handle, took = cuda.create(size)
                handles.append(handle)
                create.append(took)
                mapped.append(cuda.map(start + index * size, size, handle))
                access.append(cuda.set_access(start + index * size, size))
            tell({"handle MiB": size // MIB, "share": round((tenth + 1) / 10 * share, 2),
                  **spread(create, "create"), **spread(mapped, "map"),
                  **spread(access, "access")})
    except (CudaError, TimeoutError) as error:
        ended = str(error)
    unmap = [cuda.unmap(start + index * size, size) for index in range(len(handles))]
    release = [cuda.release(handle) for handle in handles]
    # What the driver clears before it gives it out again, if it does so, is to be cleared now.
    again = [cuda.create(size) for _ in handles[:AGAIN]]
    for handle, _ in again:
        cuda.release(handle)
    cuda.release_addresses(start, count * size)
    row = {"handle MiB": size // MIB, "handles": len(handles), "ended": ended}
    tell({**row, **spread(unmap, "unmap"), **spread(release, "release"),
          **spread([took for _, took in again], "created again")} if handles else row)


def main() -> None:
    share = float(sys.argv[1]) if len(sys.argv) > 1 else 0.9
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 40.0
    cuda = Cuda()
    for size in SIZES:
        grow(cuda, size * MIB, share, seconds)


if __name__ == "__main__":
    main()
