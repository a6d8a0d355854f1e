"""Whether one call over many handles costs as one call or as many.

Prints a row for each size of handle and number of handles. Times are microseconds of one call.
"""

from __future__ import annotations

from cuda import MIB, Cuda, spread, tell

REPEATS = 30


def row(cuda: Cuda, size: int, count: int) -> dict[str, object]:
    start = cuda.reserve(size * count)
    handles = [cuda.create(size)[0] for _ in range(count)]
    access, unmap = [], []
    for _ in range(REPEATS):
        for index, handle in enumerate(handles):
            cuda.map(start + index * size, size, handle)
        access.append(cuda.set_access(start, size * count))
        unmap.append(cuda.unmap(start, size * count))
    for handle in handles:
        cuda.release(handle)
    cuda.release_addresses(start, size * count)
    return {"handle MiB": size // MIB, "handles": count, **spread(access, "access"),
            **spread(unmap, "unmap")}


def main() -> None:
    cuda = Cuda()
    for size in (2, 8):
        for count in (1, 2, 4, 8, 16, 32, 64):
            tell(row(cuda, size * MIB, count))


if __name__ == "__main__":
    main()
