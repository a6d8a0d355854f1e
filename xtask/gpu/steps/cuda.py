"""The driver through ctypes, for steps that measure it: calls that fail raise, and are timed."""

from __future__ import annotations

import ctypes
import json
import statistics
import sys
import time
from collections.abc import Sequence

MIB = 1 << 20
#: How a step says that there is nothing here to run it on, as the last line on standard error.
SKIPPED = 77
#: No code of the driver.
MISSING = -1

Address = ctypes.c_uint64


class Location(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    """``CUmemAllocationProp``"""

    _fields_ = [
        ("kind", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
        ("win32", ctypes.c_void_p), ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4)]


class Access(ctypes.Structure):
    """``CUmemAccessDesc``"""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class CudaError(Exception):
    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} returned {code}")
        self.name, self.code = name, code


def skip(reason: str) -> None:
    print(reason, file=sys.stderr)
    sys.exit(SKIPPED)


class Cuda:
    """The driver with the first device's primary context current."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            skip(f"no driver: {error}")
        code = self.code("cuInit", 0)
        if code == 100:
            skip("the driver has no device")
        if code != 0:
            raise CudaError("cuInit", code)
        self.context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.enter()
        here = Location(1, 0)
        self.properties = Properties(kind=1, handle_types=1, location=here)
        self.access = Access(here, 3)
        self.granule = self.size("cuMemGetAllocationGranularity", self.properties, 0)

    def enter(self) -> None:
        """Makes the context current in this thread."""
        self("cuCtxSetCurrent", self.context)

    def code(self, name: str, *arguments: object) -> int:
        """What a function returns; `MISSING` where the driver has none of that name."""
        try:
            function = getattr(self._library, name)
        except AttributeError:
            return MISSING
        return function(*arguments)

    def __call__(self, name: str, *arguments: object) -> None:
        code = self.code(name, *arguments)
        if code != 0:
            raise CudaError(name, code)

    def timed(self, name: str, *arguments: object) -> float:
        """Calls a function that must succeed; how many microseconds it took."""
        function = getattr(self._library, name)
        start = time.perf_counter()
        code = function(*arguments)
        end = time.perf_counter()
        if code != 0:
            raise CudaError(name, code)
        return (end - start) * 1e6

    def size(self, name: str, structure: ctypes.Structure, *arguments: object) -> int:
        answer = ctypes.c_size_t()
        self(name, ctypes.byref(answer), ctypes.byref(structure), *arguments)
        return answer.value

    def want(self, handle_type: int, rdma: int) -> None:
        """What memory that is created from now on is for."""
        self.properties.handle_types, self.properties.rdma = handle_type, rdma

    def free_bytes(self) -> int:
        return self.memory()[0]

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and in all."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value

    def name(self) -> str:
        text = ctypes.create_string_buffer(96)
        self("cuDeviceGetName", text, len(text), 0)
        return text.value.decode(errors="replace")

    def must_serve_several(self) -> None:
        """Skips the step where the device serves one process at a time."""
        exclusive = 3
        if self.attribute(20) == exclusive:
            skip("the device is in exclusive mode, and this takes several processes")

    def is_simulated(self) -> bool:
        """A device that computes nothing and takes no time."""
        return "Simulated" in self.name()

    def reserve(self, size: int) -> int:
        address = Address()
        self("cuMemAddressReserve", ctypes.byref(address), ctypes.c_size_t(size),
             ctypes.c_size_t(0), Address(0), ctypes.c_ulonglong(0))
        return address.value

    def release_addresses(self, address: int, size: int) -> None:
        self("cuMemAddressFree", Address(address), ctypes.c_size_t(size))

    def create(self, size: int) -> tuple[Address, float]:
        """Physical memory, and the time that took."""
        handle = Address()
        took = self.timed("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size),
                          ctypes.byref(self.properties), ctypes.c_ulonglong(0))
        return handle, took

    def map(self, address: int, size: int, handle: Address) -> float:
        return self.timed("cuMemMap", Address(address), ctypes.c_size_t(size), ctypes.c_size_t(0),
                          handle, ctypes.c_ulonglong(0))

    def set_access(self, address: int, size: int) -> float:
        return self.timed("cuMemSetAccess", Address(address), ctypes.c_size_t(size),
                          ctypes.byref(self.access), ctypes.c_size_t(1))

    def unmap(self, address: int, size: int) -> float:
        return self.timed("cuMemUnmap", Address(address), ctypes.c_size_t(size))

    def release(self, handle: Address) -> float:
        return self.timed("cuMemRelease", handle)

    def stream(self) -> ctypes.c_void_p:
        """A stream that does not wait for the default one."""
        stream = ctypes.c_void_p()
        self("cuStreamCreate", ctypes.byref(stream), 1)
        return stream

    def event(self, flags: int = 0) -> ctypes.c_void_p:
        event = ctypes.c_void_p()
        self("cuEventCreate", ctypes.byref(event), flags)
        return event


def tell(row: dict[str, object]) -> None:
    """Prints a row at once: a step that is ended has told what it knew."""
    print(json.dumps(row), flush=True)


def spread(times: Sequence[float], name: str) -> dict[str, float]:
    """Median, 99th percentile and worst of some times in microseconds."""
    ordered = sorted(times)
    return {
        f"{name} p50": round(statistics.median(ordered), 2),
        f"{name} p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 2),
        f"{name} max": round(ordered[-1], 2),
    }
