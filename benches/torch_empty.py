"""Times `torch.empty` and its free under PyTorch's own allocator, Drystone and none, in turns.

Run by `cargo xtask torch -- benches/torch_empty.py` after `cargo xtask capi`, with
`PYTHONPATH=python` and `DRYSTONE_LIBRARY=target/capi/lib/libdrystone.so`. Each kind of allocator is
a process of its own, asked for short runs in turns, so that a busy machine slows all of them alike;
of each the smallest is given, in nanoseconds of the thread's own time. `floor` is a plug-in in C that
gives everybody one address and does nothing: what is left is Python's and PyTorch's. It takes a C
compiler.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

KINDS = ("native", "compiled", "plugin", "floor")
CASES = {
    # What PyTorch takes where nobody is asked for memory.
    "0 B": ([0], False),
    "4 KiB": ([4 << 10], False),
    "8 MiB": ([8 << 20], False),
    "4 KiB, a created stream": ([4 << 10], True),
    "4 KiB and 8 MiB in turns": ([4 << 10, 8 << 20], False),
    "six sizes in turns": ([512, 30 << 10, 700 << 10, 3 << 20, 8 << 20, 50 << 20], False),
}
NOTHING = """
#include <stddef.h>
void* nothing_malloc(size_t bytes, int device, void* stream) { return (void*)(1ULL << 45); }
void nothing_free(void* at, size_t bytes, int device, void* stream) {}
"""
ROUNDS, RUNS, TIMES = 40, 10, 4000


def serve(kind: str) -> None:
    """Answers each case that is named on a line with its best run."""
    import torch
    if kind == "floor":
        torch.cuda.memory.change_current_allocator(nothing(torch))
    elif kind != "native":
        import drystone
        drystone.enable(route=kind)
    streams = (torch.cuda.default_stream(), torch.cuda.Stream())
    for line in sys.stdin:
        sizes, is_created = CASES[line.strip()]
        with torch.cuda.stream(streams[is_created]):
            print(min(run(torch, sizes) for _ in range(RUNS)), flush=True)


def nothing(torch: object) -> object:
    """An allocator that does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/nothing.so"
        command = ["cc", "-x", "c", "-O2", "-shared", "-fPIC", "-o", library, "-"]
        subprocess.run(command, input=NOTHING, text=True, check=True)
        return torch.cuda.memory.CUDAPluggableAllocator(library, "nothing_malloc", "nothing_free")


def run(torch: object, sizes: list[int]) -> float:
    times = TIMES // len(sizes)
    begin = time.thread_time_ns()
    for _ in range(times):
        for size in sizes:
            torch.empty(size, dtype=torch.uint8, device="cuda")
    return (time.thread_time_ns() - begin) / (times * len(sizes))


def main() -> None:
    if len(sys.argv) > 1:
        return serve(sys.argv[1])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    servers = {kind: subprocess.Popen([sys.executable, __file__, kind], **pipes) for kind in KINDS}
    best: dict[tuple[str, str], float] = {}
    for _ in range(ROUNDS):
        for case in CASES:
            for kind, server in servers.items():
                server.stdin.write(case + "\n")
                server.stdin.flush()
                taken = float(server.stdout.readline())
                best[kind, case] = min(best.get((kind, case), taken), taken)
    for server in servers.values():
        server.communicate()
    for case in CASES:
        print(f"{case:26}", *(f"{kind} {best[kind, case]:.0f}  " for kind in KINDS))


if __name__ == "__main__":
    sys.exit(main())
