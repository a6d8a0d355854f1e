"""Which memory the device gives: each set of flags through create, map, access, unmap and release.

Prints a row for each set, with the call that refused it; then rows for large reservations.
"""

from __future__ import annotations

import ctypes

from cuda import Cuda, CudaError, tell

#: ``CUmemAllocationHandleType``
HANDLE_TYPES = {"none": 0, "file descriptor": 1, "fabric": 8}
GIB = 1 << 30


def outcome(cuda: Cuda, handle_type: int, rdma: int) -> str:
    cuda.want(handle_type, rdma)
    size = cuda.granule
    start = cuda.reserve(size)
    try:
        handle, _ = cuda.create(size)
        try:
            cuda.map(start, size, handle)
            cuda.set_access(start, size)
            cuda.unmap(start, size)
        finally:
            cuda.release(handle)
        cuda.release_addresses(start, size)
    except CudaError as error:
        return str(error)
    return "works"


def reservation(cuda: Cuda, size: int) -> str:
    try:
        cuda.release_addresses(cuda.reserve(size), size)
    except CudaError as error:
        return str(error)
    return "works"


def main() -> None:
    cuda = Cuda()
    said = ctypes.c_int()
    cuda("cuDeviceGetAttribute", ctypes.byref(said), 110, 0)
    for name, number in HANDLE_TYPES.items():
        for rdma in (0, 1):
            tell({"handles": name, "for RDMA": bool(rdma), "device says RDMA": bool(said.value),
                  "outcome": outcome(cuda, number, rdma)})
    for gib in (1, 32, 128, 1024, 16 * 1024):
        tell({"addresses GiB": gib, "outcome": reservation(cuda, gib * GIB)})


if __name__ == "__main__":
    main()
