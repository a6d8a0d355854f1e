"""What creating and mapping costs when several processes do it at once.

Prints a row for 1, 2 and 4 processes. Times are microseconds of one call.
"""

from __future__ import annotations

import json
import subprocess
import sys

from cuda import MIB, Cuda, spread, tell

HANDLES = 500


def child() -> None:
    """Waits until all are ready; then prints its times."""
    cuda = Cuda()
    size = 2 * MIB
    start = cuda.reserve(HANDLES * size)
    print("ready", flush=True)
    sys.stdin.readline()
    create, mapped, access = [], [], []
    for index in range(HANDLES):
        handle, took = cuda.create(size)
        create.append(took)
        mapped.append(cuda.map(start + index * size, size, handle))
        access.append(cuda.set_access(start + index * size, size))
    print(json.dumps([create, mapped, access]))


def row(count: int) -> dict[str, object]:
    children = [
        subprocess.Popen([sys.executable, "-B", __file__, "child"], text=True,
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(count)]
    for one in children:
        if one.stdout.readline() != "ready\n":
            raise RuntimeError("a process did not get ready")
    for one in children:
        one.stdin.write("go\n")
        one.stdin.flush()
    answers = [json.loads(one.communicate()[0]) for one in children]
    create, mapped, access = ([took for one in answers for took in one[kind]] for kind in range(3))
    return {"processes": count, **spread(create, "create"), **spread(mapped, "map"),
            **spread(access, "access")}


def main() -> None:
    Cuda().must_serve_several()
    for count in (1, 2, 4):
        tell(row(count))


if __name__ == "__main__":
    child() if sys.argv[1:] == ["child"] else main()
