"""Two ranks that exchange captured buffers, as the all-reduce of inference servers does.

    all_reduce.py ROUTE

Each captures a graph, asks where the allocations begin that hold the buffers, exchanges handles of
those and opens the other's. What was freed while it was captured is a buffer, too.
"""

import ctypes
import json
import multiprocessing
import sys

MIB = 1 << 20
LAZY, RANGE_START = 1, 11
PATTERN = bytes(range(1, 255))


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]


def rank(number, route, line):
    import drystone
    import torch
    drystone.enable(route=route)
    torch.cuda.set_device(number % torch.cuda.device_count())
    driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")

    def ok(status):
        assert status == 0, status

    def give(address):
        start, handle = ctypes.c_uint64(), Handle()
        ok(driver.cuPointerGetAttribute(
            ctypes.byref(start), RANGE_START, ctypes.c_uint64(address)))
        ok(runtime.cudaIpcGetMemHandle(ctypes.byref(handle), start))
        return bytes(handle), address - start.value

    eager = torch.zeros(3 * MIB, dtype=torch.uint8, device="cuda")
    graph, buffers = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for mib in (1, 350, 12):
            buffer = torch.zeros(mib * MIB, dtype=torch.uint8, device="cuda")
            buffers.append((buffer.data_ptr(), buffer.numel()))
            del buffer
        kept = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
    buffers += [(one.data_ptr(), one.numel()) for one in (kept, eager)]
    graph.replay()
    torch.cuda.synchronize()
    given = [(*give(address), size) for address, size in buffers]
    line.send(given)
    opened = {}
    for bytes_, offset, size in line.recv():
        if bytes_ not in opened:
            at = ctypes.c_uint64()
            ok(runtime.cudaIpcOpenMemHandle(ctypes.byref(at), Handle.from_buffer_copy(bytes_), LAZY))
            opened[bytes_] = at.value
        # To the very end of the buffer, which a later one may have begun to use.
        end = opened[bytes_] + offset + size - len(PATTERN)
        ok(runtime.cudaMemcpy(ctypes.c_uint64(end), PATTERN, len(PATTERN), 4))
    line.send("written")
    line.recv()
    found = ctypes.create_string_buffer(len(PATTERN))
    seen = []
    for address, size in buffers:
        end = address + size - len(PATTERN)
        ok(runtime.cudaMemcpy(found, ctypes.c_uint64(end), len(PATTERN), 4))
        seen.append(found.raw == PATTERN)
    # Nothing of it moves, though memory is short, and the graph runs.
    graph.replay()
    torch.cuda.synchronize()
    again = [(*give(address), size) for address, size in buffers]
    for at in opened.values():
        ok(runtime.cudaIpcCloseMemHandle(ctypes.c_uint64(at)))
    line.send({"seen": seen, "same": again == given, "handles": len({one[0] for one in given})})
    line.recv()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    lines = [multiprocessing.Pipe() for _ in range(2)]
    ranks = [multiprocessing.Process(target=rank, args=(number, sys.argv[1], lines[number][1]))
             for number in range(2)]
    for one, line in zip(ranks, lines, strict=True):
        one.start()
        # A rank that ends early is not waited for.
        line[1].close()
    for _ in range(2):
        first, second = (line[0].recv() for line in lines)
        lines[0][0].send(second)
        lines[1][0].send(first)
    answers = [line[0].recv() for line in lines]
    for line, one in zip(lines, ranks, strict=True):
        line[0].send("end")
        one.join()
    print(json.dumps({"answers": answers, "exits": [one.exitcode for one in ranks]}))
