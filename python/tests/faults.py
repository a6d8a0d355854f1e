"""Each function of the driver that serves memory fails, once and for ever, under a PyTorch program.

    faults.py ROUTE PROFILE...

For each kind of device (the simulated driver's `profile`), from the first tensor on and later.
Whatever fails, the process goes on, and what PyTorch raises has a text; once the driver works
again, so does the program, and all memory comes back. Each case is a process of its own; the last
line is how many there were and what went wrong, as JSON.
"""

import itertools
import json
import os
import sys
import traceback

import torch

import drystone
import simulated
from support import MIB

FUNCTIONS = (
    "cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap",
    "cuMemRelease", "cuMemAddressFree", "cuMemGetInfo", "cuMemAlloc", "cuMemFree", "cuEventCreate",
    "cuEventRecord", "cuStreamWaitEvent",
)
# Out of memory, and an error of any kind.
ERRORS = (2, 999)
SIZES = (512, 3 * MIB, 40 * MIB, 300 * MIB)


def work(streams, may_fail):
    """Tensors on two streams, one that no device holds, and what gives memory back."""
    kept = []

    def tried(step):
        try:
            step()
        except RuntimeError as error:
            assert may_fail and len(str(error)) > 10, error

    def one(stream, size):
        with torch.cuda.stream(stream):
            tensor = torch.zeros(size, dtype=torch.uint8, device="cuda")
        tensor.record_stream(streams[0])
        kept.append(tensor)

    def too_much():
        try:
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error:
            assert "out of memory" in str(error), error

    for size, stream in itertools.product(SIZES, streams):
        tried(lambda size=size, stream=stream: one(stream, size))
    del kept[::2]
    for step in (too_much, torch.cuda.empty_cache, torch.cuda.memory_stats):
        tried(step)
    kept.clear()
    tried(torch.cuda.synchronize)


def case(profile, route, function, is_later, for_ever, error):
    simulated.configure(f"memory:2GiB,profile:{profile}")
    drystone.enable(route=route)
    torch.cuda.init()
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    if is_later:
        work(streams, may_fail=False)
    simulated.fail(function, error, for_ever=for_ever)
    work(streams, may_fail=True)
    simulated.clear_faults()
    for _ in range(2):
        work(streams, may_fail=False)
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved(), simulated.physical_bytes()
    assert held == (0, 0), held


def failure_of(*arguments):
    """What goes wrong in a process of its own; none if nothing does."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writer, 2)
        status = 1
        try:
            case(*arguments)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with open(reader, errors="replace") as said:
        text = said.read()
    status = os.waitpid(child, 0)[1]
    return "" if status == 0 else f"{arguments}, status {status}: {text[-300:]}"


def main(route, *profiles):
    cases = list(itertools.product(profiles, [route], FUNCTIONS, (0, 1), (0, 1), ERRORS))
    failures = [text for one in cases if (text := failure_of(*one))]
    print(json.dumps({"cases": len(cases), "failures": failures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
