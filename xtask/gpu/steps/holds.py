"""Whether streams can be held while memory gets other memory behind its addresses.

    holds.py [MOVES]

A stream is held by one batch of two memory operations: it writes that it has arrived, and waits for
a word. Prints a row for each kind of stream that is held so; for what mapping calls take meanwhile,
alone and while another thread has filled a held stream's queue; for memory that moves under
streams, a graph and a thread that launches all the time, with how many words were wrong; and for
what calls say of an address behind which there is nothing. A thread lets everything go after a
second: what took so long waits for what is held, and no move would work.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable

from cuda import MIB, Address, Cuda, CudaError, spread, tell
from kernels import FILL, HEAD, VERIFY, Kernels, counter, value_of, words

#: ``CU_STREAM_LEGACY`` and ``CU_STREAM_PER_THREAD``
LEGACY, PER_THREAD = ctypes.c_void_p(1), ctypes.c_void_p(2)
WRITE, WAIT = 2, 1
WORDS = 64
#: How long streams are waited for that are to be held, and when all is let go in any case.
PATIENCE, FOR_EVER = 0.002, 1.0
#: More than the queue of a stream takes.
LAUNCHES = 4000
HANDLES, SIZE = 8, 2 * MIB


class Gate:
    """What streams wait at. Numbers only grow, so that what is open stays open."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda, memory = cuda, ctypes.c_void_p()
        cuda("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(WORDS * 4), 1)
        self.words = (ctypes.c_uint32 * WORDS).from_address(memory.value)
        ctypes.memset(memory, 0, WORDS * 4)
        self.at, self.number = memory.value, 0

    def hold(self, streams: list[ctypes.c_void_p], patience: float = PATIENCE) -> float | None:
        """Microseconds until all have arrived; ``None``: they have not, and all go on."""
        self.number += 1
        start = time.perf_counter()
        for place, stream in enumerate(streams):
            operations = ((ctypes.c_uint64 * 6) * 2)(
                (WRITE, self.at + 4 * (place + 1), self.number), (WAIT, self.at, self.number))
            self.cuda("cuStreamBatchMemOp_v2", stream, 2, operations, 0)
        while any(self.words[place + 1] != self.number for place in range(len(streams))):
            if time.perf_counter() - start > patience:
                self.open()
                return None
        return (time.perf_counter() - start) * 1e6

    def open(self) -> None:
        self.words[0] = self.number

    def watched(self, body: Callable[[], None]) -> bool:
        """Does something; whether it was done before all was let go for its sake."""
        is_done, is_late = threading.Event(), []

        def watch() -> None:
            if not is_done.wait(FOR_EVER):
                is_late.append(True)
                self.open()

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            body()
        finally:
            is_done.set()
            self.open()
            watcher.join()
        return not is_late


class Pages:
    """Memory at addresses that stay, and a place where new memory is written first."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.home = cuda, cuda.reserve(HANDLES * SIZE)
        self.scratch = cuda.reserve(SIZE)
        self.handles = [cuda.create(SIZE)[0] for _ in range(HANDLES)]
        for place, handle in enumerate(self.handles):
            cuda.map(self.home + place * SIZE, SIZE, handle)
        cuda.set_access(self.home, HANDLES * SIZE)

    def move(self, place: int, gate: Gate, streams: list[ctypes.c_void_p],
             copies: ctypes.c_void_p, times: dict[str, list[float]]) -> bool:
        """Gives one handle other memory. False if streams did not come to a stop in time."""
        cuda, at = self.cuda, self.home + place * SIZE
        new, _ = cuda.create(SIZE)
        cuda.map(self.scratch, SIZE, new)
        cuda.set_access(self.scratch, SIZE)
        start = time.perf_counter()
        arrived = gate.hold(streams)

        def exchange() -> None:
            copied = cuda.timed("cuMemcpyDtoDAsync_v2", Address(self.scratch), Address(at),
                                ctypes.c_size_t(SIZE), copies)
            copied += cuda.timed("cuStreamSynchronize", copies)
            for name, took in (("copy", copied), ("unmap", cuda.unmap(at, SIZE)),
                               ("map", cuda.map(at, SIZE, new)),
                               ("access", cuda.set_access(at, SIZE))):
                times[name].append(took)
            times["held"].append((time.perf_counter() - start) * 1e6)

        if arrived is not None:
            is_done = gate.watched(exchange)
            times["arrive"].append(arrived)
            self.handles[place], new = new, self.handles[place]
            if not is_done:
                raise TimeoutError("a call waits for streams that are held")
        cuda.unmap(self.scratch, SIZE)
        cuda.release(new)
        return arrived is not None


def kinds(cuda: Cuda, gate: Gate, streams: dict[str, ctypes.c_void_p]) -> None:
    """Each kind of stream, alone: is it held, and does it go on?"""
    for name, stream in streams.items():
        try:
            arrived = gate.hold([stream], FOR_EVER)
            is_idle = cuda.code("cuStreamQuery", stream) == 0
            gate.open()
            cuda("cuStreamSynchronize", stream)
            tell({"stream": name, "arrives us": arrived and round(arrived, 2),
                  "idle while it waits": is_idle})
        except CudaError as error:
            gate.open()
            tell({"stream": name, "said": str(error)})


def mapping(cuda: Cuda, gate: Gate, streams: list[ctypes.c_void_p], copies: ctypes.c_void_p,
            filled: ctypes.c_void_p | None) -> bool:
    """Times of each call while streams are held, perhaps with a queue that takes no more."""
    handle, at = cuda.create(SIZE)[0], cuda.reserve(SIZE)
    kernels, spare, launched = Kernels(cuda, HEAD + FILL), counter(cuda), [0]
    kernels.find("fill")
    arrived = gate.hold(streams, FOR_EVER)

    def fill() -> None:
        cuda.enter()
        for _ in range(LAUNCHES):
            kernels.launch("fill", filled, spare, words(4), ctypes.c_uint(1), groups=1)
            launched[0] += 1

    times: dict[str, float] = {}

    def calls() -> None:
        times["map"] = cuda.map(at, SIZE, handle)
        times["access"] = cuda.set_access(at, SIZE)
        times["copy"] = cuda.timed("cuMemcpyDtoDAsync_v2", Address(at), Address(at + MIB),
                                   ctypes.c_size_t(MIB), copies)
        times["copy"] += cuda.timed("cuStreamSynchronize", copies)
        times["unmap"] = cuda.unmap(at, SIZE)

    thread = threading.Thread(target=fill)
    if filled is not None:
        thread.start()
        before, since = -1, time.perf_counter()
        while launched[0] != before and time.perf_counter() - since < FOR_EVER / 2:
            before = launched[0]
            time.sleep(0.02)
    queued = launched[0]
    is_done = gate.watched(calls) and arrived is not None
    if filled is not None:
        thread.join()
    cuda("cuCtxSynchronize")
    cuda.release(handle)
    tell({"while held": "a full queue" if filled is not None else "alone", "streams": len(streams),
          "launches queued": queued, "all return": is_done,
          **{f"{name} us": round(took, 2) for name, took in times.items()}})
    return is_done


def moves(cuda: Cuda, gate: Gate, count: int, streams: list[ctypes.c_void_p],
          copies: ctypes.c_void_p) -> bool:
    """Moves memory that one stream fills and reads, and a graph on another."""
    kernels, wrong, pages = Kernels(cuda, HEAD + FILL + VERIFY), counter(cuda), Pages(cuda)
    half, is_over, said = HANDLES // 2 * SIZE, threading.Event(), []
    for name in ("fill", "verify"):
        kernels.find(name)

    def both(at: int, value: int, stream: ctypes.c_void_p) -> None:
        kernels.launch("fill", stream, Address(at), words(half), ctypes.c_uint(value))
        kernels.launch("verify", stream, Address(at), words(half), ctypes.c_uint(value), wrong)

    graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
    cuda("cuStreamBeginCapture_v2", streams[1], 1)
    both(pages.home + half, 0x2000_0000, streams[1])
    cuda("cuStreamEndCapture", streams[1], ctypes.byref(graph))
    cuda("cuGraphInstantiateWithFlags", ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
    launches = [0]

    def launch() -> None:
        try:
            cuda.enter()
            while not is_over.is_set():
                launches[0] += 1
                both(pages.home, launches[0], streams[0])
                cuda("cuGraphLaunch", ready, streams[1])
                # Written before, and read after what moves meanwhile.
                for stream in streams[:2] if launches[0] % 4 == 0 else ():
                    cuda("cuStreamSynchronize", stream)
        except CudaError as error:
            said.append(str(error))

    thread = threading.Thread(target=launch)
    thread.start()
    times = {name: [] for name in ("arrive", "copy", "unmap", "map", "access", "held")}
    moved = 0
    try:
        for number in range(count):
            moved += pages.move(number % HANDLES, gate, [LEGACY, *streams], copies, times)
    except (CudaError, TimeoutError) as error:
        said.append(str(error))
    is_over.set()
    gate.open()
    thread.join()
    cuda("cuCtxSynchronize")
    found = value_of(cuda, wrong)
    tell({"moves": moved, "not in time": count - moved, "launches": launches[0],
          "words wrong": found, "computed": not cuda.is_simulated(), "said": "; ".join(said),
          **{key: value for name, all_times in times.items() if all_times
             for key, value in spread(all_times, f"{name} us").items()}})
    return not said and found == 0 and moved > 0


def behind_nothing(cuda: Cuda, stream: ctypes.c_void_p) -> None:
    """What calls say of an address while there is nothing behind it. The last of all: what the
    driver takes for good ends the context."""
    at, value = Address(cuda.reserve(SIZE)), ctypes.c_int(0)
    calls = {
        "question": ("cuPointerGetAttribute", ctypes.byref(value), 9, at),
        "copy": ("cuMemcpyHtoDAsync_v2", at, ctypes.byref(value), ctypes.c_size_t(4), stream),
        "memset": ("cuMemsetD8Async", at, 0, ctypes.c_size_t(4), stream),
    }
    tell({"behind nothing": "error by call",
          **{name: cuda.code(function, *arguments)
             for name, (function, *arguments) in calls.items()}})


def main() -> int:
    sys.setswitchinterval(1e-5)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    cuda = Cuda()
    gate, blocking = Gate(cuda), ctypes.c_void_p()
    cuda("cuStreamCreate", ctypes.byref(blocking), 0)
    streams, copies = [cuda.stream(), cuda.stream()], cuda.stream()
    kinds(cuda, gate, {"legacy": LEGACY, "per thread": PER_THREAD, "blocking": blocking,
                       "non-blocking": streams[0]})
    works = mapping(cuda, gate, streams[:1], copies, None)
    works = mapping(cuda, gate, [LEGACY, *streams], copies, None) and works
    works = mapping(cuda, gate, [LEGACY, *streams], copies, streams[0]) and works
    if works:
        works = moves(cuda, gate, count, streams, copies)
    behind_nothing(cuda, streams[0])
    return 0 if works else 1


if __name__ == "__main__":
    sys.exit(main())
