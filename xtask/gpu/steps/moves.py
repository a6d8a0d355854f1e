"""What PyTorch gets back of memory of which little is live, and whether what lives is right then.

    moves.py native|expandable|plugin|compiled [NAME]

Takes most of the device, fills the rest with tensors and keeps one in sixteen. Prints what
`empty_cache` gives back; then the same again, with a request for all that is unused, which only
moves can serve, while a thread computes on a stream of its own with what is live all the time.
"""

from __future__ import annotations

import gc
import sys
import threading
import time

from cuda import MIB, tell
from tight import leave
from train import begin

SIZE, ROOM, KEPT = 3 * MIB, 2048 * MIB, 16
#: What a live tensor touches at most, in granules.
TOUCHED = 6 * MIB


def sparse() -> list:
    """Fills what is left, and keeps one tensor in so many, with a number of its own in each."""
    import torch
    tensors = []
    try:
        while True:
            tensors.append(torch.empty(SIZE, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    kept = tensors[KEPT // 2::KEPT]
    for number, tensor in enumerate(kept):
        tensor.fill_(number % 251)
    return kept


def wrong(kept: list) -> int | None:
    """How many tensors do not have their number everywhere; the simulated device has no numbers."""
    import torch
    if "Simulated" in torch.cuda.get_device_name():
        return None
    return sum(not bool((tensor == number % 251).all()) for number, tensor in enumerate(kept))


def whether_moves() -> str:
    """What the library says of this device."""
    try:
        from drystone import _library
        library = _library.library()
        if library.drystone_check_moves(0) == 0:
            return "yes"
        return library.drystone_last_error_message().decode(errors="replace")
    except Exception as error:
        return str(error)


def emptied(row: dict[str, object]) -> bool:
    import torch
    kept = sparse()
    gc.collect()
    before, start = torch.cuda.memory_reserved(), time.perf_counter()
    torch.cuda.empty_cache()
    took, bad = (time.perf_counter() - start) * 1e3, wrong(kept)
    tell({**row, "live MiB": len(kept) * SIZE // MIB, "reserved MiB": before // MIB,
          "after empty_cache MiB": torch.cuda.memory_reserved() // MIB,
          "free MiB": torch.cuda.mem_get_info()[0] // MIB, "empty_cache ms": round(took, 2),
          "tensors wrong": bad})
    return not bad


def served(row: dict[str, object]) -> bool:
    """Whether the request was served where memory moves, and the tensors are right."""
    import torch
    kept = sparse()
    gc.collect()
    asked = (torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
             - sum(TOUCHED for _ in kept) - torch.cuda.memory_allocated() + len(kept) * SIZE)
    is_over, rounds, side = threading.Event(), [0], torch.cuda.Stream()

    def compute() -> None:
        with torch.cuda.stream(side):
            while not is_over.is_set():
                for tensor in kept:
                    tensor.add_(1).sub_(1)
                rounds[0] += 1
                side.synchronize()

    thread = threading.Thread(target=compute)
    thread.start()
    start = time.perf_counter()
    try:
        large, said = torch.empty(asked, dtype=torch.uint8, device="cuda"), "served"
        del large
    except torch.OutOfMemoryError as error:
        said = str(error)[:400]
    took = (time.perf_counter() - start) * 1e3
    is_over.set()
    thread.join()
    bad = wrong(kept)
    tell({**row, "asked for MiB": asked // MIB, "outcome": said, "ms": round(took, 2),
          "rounds beside it": rounds[0], "tensors wrong": bad,
          "computed": bad is not None})
    return not bad and (said == "served" or row["moves"] != "yes")


def main() -> int:
    route = begin(sys.argv[1:])
    import torch
    device = torch.cuda.get_device_name()
    torch.ones(1, device="cuda")
    leave(ROOM)
    moves = whether_moves() if route in ("plugin", "compiled") else "no"
    row = {"route": route, "device": device, "moves": moves}
    is_right = emptied(row)
    torch.cuda.empty_cache()
    return 0 if served(row) and is_right else 1


if __name__ == "__main__":
    sys.exit(main())
