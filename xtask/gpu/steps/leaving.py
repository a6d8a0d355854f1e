"""How long a process with many mappings takes to end, and what the kernel holds for them.

    leaving.py [MAPPINGS]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from cuda import MIB, Cuda, CudaError, tell

ALIASES = 4


def child(mappings: int) -> None:
    """Maps each of its handles several times, waits for a word, and ends."""
    cuda = Cuda()
    size = 2 * MIB
    start = cuda.reserve(mappings * size)
    done, said = 0, "all"
    try:
        while done < mappings:
            handle, _ = cuda.create(size)
            for _ in range(min(ALIASES, mappings - done)):
                cuda.map(start + done * size, size, handle)
                cuda.set_access(start + done * size, size)
                done += 1
    except CudaError as error:
        said = str(error)
    print(json.dumps([done, said]), flush=True)
    sys.stdin.readline()


def kernel_mib() -> dict[str, float]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    figures = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    wanted = ("SUnreclaim", "VmallocUsed", "PageTables")
    return {key: figures[key] for key in wanted if key in figures}


def row(mappings: int) -> dict[str, object]:
    before, start = kernel_mib(), time.monotonic()
    process = subprocess.Popen([sys.executable, "-B", __file__, "child", str(mappings)], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    done, said = json.loads(process.stdout.readline())
    mapped = time.monotonic()
    held = kernel_mib()
    process.stdin.write("end\n")
    process.stdin.flush()
    process.wait()
    end = time.monotonic()
    return {"mappings": done, "which are": said, "s to map": round(mapped - start, 2),
            "s to end": round(end - mapped, 3),
            **{f"{key} MiB more": round(held[key] - before[key], 1) for key in before}}


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    Cuda().must_serve_several()
    for mappings in (most // 40, most // 4, most):
        tell(row(mappings))


if __name__ == "__main__":
    child(int(sys.argv[2])) if sys.argv[1:2] == ["child"] else main()
