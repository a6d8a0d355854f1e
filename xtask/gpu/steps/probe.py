"""Which memory the device gives: each set of flags through create, map, access, unmap and release.

Prints a row for each set, with the call that refused it; then rows for large reservations.
"""

from __future__ import annotations

import ctypes

from cuda import MIB, Address, Cuda, CudaError, tell

#: ``CUmemAllocationHandleType``
HANDLE_TYPES = {"none": 0, "file descriptor": 1, "fabric": 8}
GIB = 1 << 30
#: ``CUdevice_attribute``
ATTRIBUTES = {"compute major": 75, "compute minor": 76, "multiprocessors": 16, "ECC": 32,
              "copy engines": 40, "compute mode": 20, "integrated": 18}


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


def pooled(cuda: Cuda) -> str:
    """A block of the default pool, in stream order."""
    at = Address()
    try:
        cuda("cuMemAllocAsync", ctypes.byref(at), ctypes.c_size_t(MIB), None)
        cuda("cuMemFreeAsync", at, None)
        cuda("cuStreamSynchronize", None)
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
    version = ctypes.c_int()
    cuda("cuDriverGetVersion", ctypes.byref(version))
    free, total = cuda.memory()
    tell({"device": cuda.name(), "total MiB": total // MIB, "free MiB": free // MIB,
          "CUDA": version.value, "granule MiB": cuda.granule // MIB,
          **{name: cuda.attribute(number) for name, number in ATTRIBUTES.items()}})
    for name, number in HANDLE_TYPES.items():
        for rdma in (0, 1):
            tell({"handles": name, "for RDMA": bool(rdma),
                  "device says RDMA": bool(cuda.attribute(110)),
                  "outcome": outcome(cuda, number, rdma)})
    tell({"handles": "memory pool", "outcome": pooled(cuda)})
    for gib in (1, 32, 128, 1024, 16 * 1024):
        tell({"addresses GiB": gib, "outcome": reservation(cuda, gib * GIB)})


if __name__ == "__main__":
    main()
