"""Which calls each capture mode allows, and whether the capture survives them.

Prints a row for each call, mode of capture and thread that calls, as soon as it is known: what the
call returned, and what ending the capture returned. A process of its own makes the calls: one that
ends it or hangs is told, and another goes on with the next.
"""

from __future__ import annotations

import ctypes
import itertools
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial

from cuda import Address, Cuda, Location, tell

MODES = {"global": 0, "thread-local": 1, "relaxed": 2}
#: A call that takes longer hangs; the first one opens the device.
SECONDS = 10.0
SIZE_T, ULL = ctypes.c_size_t, ctypes.c_ulonglong


class Pool(ctypes.Structure):
    """``CUmemPoolProps``"""

    _fields_ = [
        ("kind", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
        ("win32", ctypes.c_void_p), ("most", SIZE_T), ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 54)]


class Things:
    """What the calls are given: made before any capture begins."""

    def __init__(self, cuda: Cuda) -> None:
        size = cuda.granule
        self.size, self.start = size, cuda.reserve(8 * size)
        self.handle = cuda.create(size)[0]
        for index in (0, 1):
            cuda.map(self.start + index * size, size, self.handle)
        cuda.set_access(self.start, size)
        self.other = cuda.stream()
        self.event = cuda.event()
        cuda("cuEventRecord", self.event, self.other)
        cuda("cuEventSynchronize", self.event)
        self.pool = ctypes.c_void_p()
        cuda.code("cuDeviceGetDefaultMemPool", ctypes.byref(self.pool), 0)
        self.allocated = Address()
        cuda("cuMemAlloc_v2", ctypes.byref(self.allocated), SIZE_T(1 << 20))
        self.spare_handle, self.spare_start = cuda.create(size)[0], cuda.reserve(size)
        self.spare_event = cuda.event(2)
        self.shared = ctypes.c_int(-1)
        # Where that is refused, so are the calls that need it, and their rows say how.
        cuda.code("cuMemExportToShareableHandle", ctypes.byref(self.shared), self.handle, 1,
                  ULL(0))
        self.own_pool, self.from_pool = ctypes.c_void_p(), Address()
        self.pool_properties = Pool(kind=1, location=Location(1, 0))
        cuda.code("cuMemPoolCreate", ctypes.byref(self.own_pool),
                  ctypes.byref(self.pool_properties))
        cuda.code("cuMemAllocAsync", ctypes.byref(self.from_pool), SIZE_T(1 << 20), self.other)
        self.host = ctypes.c_void_p()
        cuda("cuMemHostAlloc", ctypes.byref(self.host), SIZE_T(4096), 0)


def calls(cuda: Cuda, things: Things, stream: ctypes.c_void_p) -> dict[str, Callable[[], int]]:
    """The calls, by name and what of. ``stream`` is the one that captures."""
    size, answer = SIZE_T(things.size), (ctypes.c_uint64 * 8)()
    second, third = (Address(things.start + number * things.size) for number in (1, 2))
    other, pool, own_pool = things.other, things.pool, things.own_pool
    access, reserved, mib = ctypes.byref(cuda.access), ULL(0), SIZE_T(1 << 20)
    rows: list[tuple[object, ...]] = [
        ("cuMemGetInfo_v2", "", ctypes.byref(answer, 0), ctypes.byref(answer, 8)),
        ("cuMemAddressReserve", "", answer, size, SIZE_T(0), Address(0), reserved),
        ("cuMemCreate", "", answer, size, ctypes.byref(cuda.properties), reserved),
        ("cuMemMap", "", third, size, SIZE_T(0), things.handle, reserved),
        ("cuMemSetAccess", "", second, size, access, SIZE_T(1)),
        ("cuMemUnmap", "", second, size),
        ("cuMemRelease", "", things.spare_handle),
        ("cuMemAddressFree", "", Address(things.spare_start), size),
        ("cuMemExportToShareableHandle", "", answer, things.handle, 1, reserved),
        ("cuMemImportFromShareableHandle", "", answer, ctypes.c_void_p(things.shared.value), 1),
        ("cuMemAlloc_v2", "", answer, mib),
        ("cuMemFree_v2", "", things.allocated),
        ("cuMemAllocAsync", "other", answer, mib, other),
        ("cuMemAllocFromPoolAsync", "other", answer, mib, own_pool, other),
        ("cuMemFreeAsync", "other", things.from_pool, other),
        ("cuMemPoolCreate", "", answer, ctypes.byref(things.pool_properties)),
        ("cuMemPoolDestroy", "", own_pool),
        ("cuMemPoolSetAttribute", "", own_pool, 4, answer),
        ("cuMemPoolSetAccess", "", own_pool, access, SIZE_T(1)),
        ("cuMemHostAlloc", "", answer, SIZE_T(4096), 0),
        ("cuMemFreeHost", "", things.host),
        ("cuMemPoolGetAttribute", "", pool, 5, answer),
        ("cuMemPoolTrimTo", "", pool, SIZE_T(0)),
        ("cuStreamIsCapturing", "captured", stream, answer),
        ("cuStreamIsCapturing", "other", other, answer),
        ("cuStreamGetId", "other", other, answer),
        ("cuStreamGetId", "captured", stream, answer),
        ("cuStreamQuery", "other", other),
        ("cuStreamSynchronize", "other", other),
        ("cuStreamCreate", "", answer, 1),
        ("cuEventCreate", "", answer, 2),
        ("cuEventDestroy_v2", "", things.spare_event),
        ("cuStreamWaitEvent", "other", other, things.event, 0),
        ("cuEventRecord", "other", things.event, other),
        ("cuEventQuery", "", things.event),
        ("cuEventSynchronize", "", things.event),
        ("cuCtxSynchronize", ""),
    ]
    return {", ".join(filter(None, [name.removesuffix("_v2"), of])):
            partial(cuda.code, name, *arguments) for name, of, *arguments in rows}


def in_thread(cuda: Cuda, call: Callable[[], int]) -> int:
    answers: list[int] = []

    def body() -> None:
        cuda.enter()
        answers.append(call())

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return answers[0]


def row(cuda: Cuda, name: str, mode: str, thread: str) -> dict[str, object]:
    things, stream = Things(cuda), cuda.stream()
    call = calls(cuda, things, stream)[name]
    before = call() if name in ("cuMemGetInfo", "cuMemPoolGetAttribute") else 0
    cuda("cuStreamBeginCapture_v2", stream, MODES[mode])
    returned = call() if thread == "own" else in_thread(cuda, call)
    graph = ctypes.c_void_p()
    ended = cuda.code("cuStreamEndCapture", stream, ctypes.byref(graph))
    return {"call": name, "mode": mode, "thread": thread, "returned": returned, "ended": ended,
            **({"without": before} if before else {})}


def child(first: int) -> None:
    """All rows from a number on. Before each it says which: who reads knows then what ended it."""
    cuda = Cuda()
    things = Things(cuda)
    names = list(calls(cuda, things, cuda.stream()))
    if not things.own_pool.value:
        # Nothing is there that could be asked.
        names = [name for name in names if "Pool" not in name and "Async" not in name]
    for number, one in enumerate(itertools.product(names, MODES, ("own", "other"))):
        if number >= first:
            print(*one, number, sep="|", flush=True)
            tell(row(cuda, *one))


def main() -> int:
    first = 0
    while True:
        process = subprocess.Popen([sys.executable, "-B", __file__, str(first)],
                                   stdout=subprocess.PIPE, bufsize=0)
        asked: list[str] = []
        while select.select([process.stdout], [], [], SECONDS)[0]:
            line = process.stdout.readline().decode()
            if line.startswith("{"):
                print(line, end="", flush=True)
                asked = []
            elif line:
                asked = line.strip().split("|")
            else:
                break
        else:
            process.kill()
        code = process.wait()
        if not asked:
            return code
        name, mode, thread, number = asked
        tell({"call": name, "mode": mode, "thread": thread, "returned": None, "ended": None,
              "said": f"the process hung, or ended with {code}"})
        first = int(number) + 1


if __name__ == "__main__":
    child(int(sys.argv[1])) if sys.argv[1:] else sys.exit(main())
