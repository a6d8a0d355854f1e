"""Memory beside the allocator: what libraries take of the device without asking it.

Each is a line of its own in a report, and a range where its size is not published. What cuDNN's
convolutions work in is among it: it comes from the allocator, but how much is not known. Invariant:
only what a program called is counted.
"""

from __future__ import annotations

from typing import Any

from ._gpus import MIB, SHARED_USED, Gpu, Range

# What a library takes once it was used, in MiB, with the beginnings of its functions' names.
# Sources of all figures here: docs/use/dry-run.md, "Beside the allocator".
LIBRARIES = {
    "cuBLAS kernels": ("cublas", (20, 90)),
    "cuDNN kernels": ("cudnn", (20, 300)),
}
# What each call of a function takes, in MiB.
EACH = {
    "NCCL": (("ncclCommInit", "ncclCommSplit"), (150, 1600)),
    "graphs": (("cuGraphInstantiate",), (0, 24)),
}
# What NCCL takes beyond that once ranks send to one another, in MiB.
POINT_TO_POINT = "NCCL, point to point", ("ncclSend", "ncclRecv"), (0, 3400)
# Where several processes use one device.
OTHERS = "other processes on it"
# Where processor and GPU share one memory.
SYSTEM = "system and its programs"
# Workspaces that PyTorch's allocator may cache at once: that in which engines were tried, and that
# of the engine that was chosen. Its search gives back what is cached between two convolutions.
CACHED = 2


def beside(gpu: Gpu, calls: dict[str, Any], searches: bool = True) -> dict[str, Range]:
    """What libraries hold, by the calls that were counted, and whether engines are searched for."""
    counted = {name: count for name, count in calls["counted"].items()
               if not name.endswith(("GetVersion", "GetCudartVersion", "GetProperty"))}
    counted.update({name: told["calls"] for name, told in calls["functions"].items()})

    def times(begins: str | tuple[str, ...]) -> int:
        return sum(count for name, count in counted.items() if name.startswith(begins))

    held = {"CUDA context": gpu.context}
    if gpu.is_shared:
        held[SYSTEM] = Range(*(int(gpu.cuda.low * share) for share in SHARED_USED))
    for holder, (begins, (low, high)) in LIBRARIES.items():
        if times(begins):
            held[holder] = Range(low * MIB, high * MIB)
    for holder, (begins, (low, high)) in EACH.items():
        if count := times(begins):
            held[holder] = Range(low * count * MIB, high * count * MIB)
    holder, begins, (low, high) = POINT_TO_POINT
    if times(begins):
        held[holder] = Range(low * MIB, high * MIB)
    _, most = calls["convolution_bytes"]
    if calls["engine_bytes"] and not searches:
        # The engine that cuDNN puts first, by its own word.
        most = calls["engine_bytes"]
    if most:
        held["workspaces of convolutions"] = Range(0, CACHED * most)
    return held
