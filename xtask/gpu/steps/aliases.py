"""Whether memory mapped at two addresses is one memory to kernels that follow one another.

    aliases.py [ROUNDS]

What one kernel writes at the first address the next reads at the second, and the other way round:
in one stream, in two with an event between, in a graph that is launched again and again, on the
device before its predecessor has ended (programmatic dependent launch), written by bulk copies
(TMA), and at a second address that leads elsewhere in each round, in a graph too. Prints a row for
each way with how many words were wrong: Drystone's remaps rest on there being none.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

from cuda import MIB, Address, Cuda, CudaError, tell
from kernels import BULK, BULK_BYTES, EARLY, FILL, HEAD, VERIFY, Kernels, counter, value_of, words

HANDLES = 64
#: Larger than what is cached of it on the device, in parts.
SIZE = HANDLES * 2 * MIB


class Memory:
    """Handles mapped twice: in order, and in reverse."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.each = SIZE // HANDLES
        self.handles = [cuda.create(self.each)[0] for _ in range(HANDLES)]
        self.home, self.window = cuda.reserve(SIZE), cuda.reserve(SIZE)
        self.map(self.home, list(range(HANDLES)))
        self.map(self.window, list(reversed(range(HANDLES))))

    def map(self, start: int, order: list[int]) -> None:
        for place, index in enumerate(order):
            self.cuda.map(start + place * self.each, self.each, self.handles[index])
        self.cuda.set_access(start, SIZE)


class Test:
    def __init__(self, cuda: Cuda, rounds: int) -> None:
        self.cuda, self.rounds = cuda, rounds
        self.memory, self.wrong = Memory(cuda), counter(cuda)
        self.kernels = Kernels(cuda, HEAD + FILL + VERIFY)
        self.one, self.two = cuda.stream(), cuda.stream()
        self.event = cuda.event(2)

    def pairs(self) -> tuple[tuple[int, int], ...]:
        memory = self.memory
        return (memory.home, memory.window), (memory.window, memory.home)

    def fill(self, at: int, value: int, stream, kernels: Kernels | None = None,
             **how: object) -> None:
        (kernels or self.kernels).launch("fill", stream, Address(at), words(SIZE),
                                         ctypes.c_uint(value), **how)

    def verify(self, at: int, value: int, stream, kernels: Kernels | None = None,
               **how: object) -> None:
        (kernels or self.kernels).launch("verify", stream, Address(at), words(SIZE),
                                         ctypes.c_uint(value), self.wrong, **how)

    def in_one_stream(self) -> None:
        for number in range(self.rounds):
            for to, at in self.pairs():
                self.fill(to, number * 2 + (to < at), self.one)
                self.verify(at, number * 2 + (to < at), self.one)

    def in_two_streams(self) -> None:
        for number in range(self.rounds):
            for to, at in self.pairs():
                value = number * 2 + (to < at) + 0x1000_0000
                self.fill(to, value, self.one)
                self.cuda("cuEventRecord", self.event, self.one)
                self.cuda("cuStreamWaitEvent", self.two, self.event, 0)
                self.verify(at, value, self.two)
                self.cuda("cuEventRecord", self.event, self.two)
                self.cuda("cuStreamWaitEvent", self.one, self.event, 0)

    def captured(self) -> ctypes.c_void_p:
        """A graph that writes through each address what it then reads through the other."""
        graph, launched = ctypes.c_void_p(), ctypes.c_void_p()
        for name in ("fill", "verify"):
            self.kernels.find(name)
        self.cuda("cuStreamBeginCapture_v2", self.one, 1)
        for number, (to, at) in enumerate(self.pairs()):
            self.fill(to, number + 0x2000_0000, self.one)
            self.verify(at, number + 0x2000_0000, self.one)
        self.cuda("cuStreamEndCapture", self.one, ctypes.byref(graph))
        self.cuda("cuGraphInstantiateWithFlags", ctypes.byref(launched), graph,
                  ctypes.c_ulonglong(0))
        return launched

    def in_a_graph(self) -> None:
        launched = self.captured()
        for _ in range(self.rounds):
            self.cuda("cuGraphLaunch", launched, self.one)

    def moved_below_a_graph(self) -> None:
        """A graph that was made before goes on where its second address leads elsewhere."""
        launched, count = self.captured(), len(self.memory.handles)
        for number in range(self.rounds // 10):
            self.cuda("cuGraphLaunch", launched, self.one)
            self.cuda("cuStreamSynchronize", self.one)
            self.cuda.unmap(self.memory.window, SIZE)
            self.memory.map(self.memory.window,
                            [(place * 7 + number) % count for place in range(count)])

    def dependent(self) -> None:
        early = Kernels(self.cuda, EARLY)
        for number in range(self.rounds):
            for to, at in self.pairs():
                value = number * 2 + (to < at) + 0x3000_0000
                self.fill(to, value, self.one, early)
                self.verify(at, value, self.one, early, is_early=True)

    def by_bulk_copies(self) -> None:
        bulk = Kernels(self.cuda, BULK)
        for number in range(self.rounds):
            for to, at in self.pairs():
                value = number * 2 + (to < at) + 0x4000_0000
                bulk.launch("bulk", self.one, Address(to), ctypes.c_uint(value),
                            groups=SIZE // BULK_BYTES)
                self.verify(at, value, self.one)

    def moved(self) -> None:
        """The second address leads to other memory each time, once in ten rounds: the host waits
        for that."""
        memory, count = self.memory, len(self.memory.handles)
        for number in range(self.rounds // 10):
            self.cuda("cuStreamSynchronize", self.one)
            self.cuda.unmap(memory.window, SIZE)
            order = [(place * 7 + number) % count for place in range(count)]
            memory.map(memory.window, order)
            for index in range(count):
                self.part("fill", memory.home, index, number * count + index)
            for place, index in enumerate(order):
                self.part("verify", memory.window, place, number * count + index, self.wrong)

    def part(self, name: str, start: int, place: int, value: int, *more: object) -> None:
        each = self.memory.each
        self.kernels.launch(name, self.one, Address(start + place * each), words(each),
                            ctypes.c_uint(value + 0x5000_0000), *more)


def row(test: Test, name: str, way: Callable[[], None]) -> dict[str, object]:
    before = value_of(test.cuda, test.wrong)
    try:
        way()
        test.cuda("cuCtxSynchronize")
    except CudaError as error:
        return {"way": name, "words wrong": None, "said": str(error)}
    return {"way": name, "words wrong": value_of(test.cuda, test.wrong) - before, "said": ""}


def main() -> int:
    cuda = Cuda()
    test = Test(cuda, int(sys.argv[1]) if len(sys.argv) > 1 else 300)
    # Last what devices before compute capability 9.0 do not have.
    ways = {"one stream": test.in_one_stream, "two streams and an event": test.in_two_streams,
            "a graph": test.in_a_graph, "moved in each round": test.moved,
            "moved between launches of a graph": test.moved_below_a_graph}
    if cuda.attribute(75) >= 9:
        ways |= {"dependent launches": test.dependent, "bulk copies": test.by_bulk_copies}
    rows = []
    for name, way in ways.items():
        rows.append(row(test, name, way))
        tell(rows[-1] | {"rounds": test.rounds, "computed": not cuda.is_simulated()})
    return any(one["words wrong"] != 0 for one in rows)


if __name__ == "__main__":
    sys.exit(main())
