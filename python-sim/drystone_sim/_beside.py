"""Memory beside the allocator: what libraries take of the device without asking it.

Each is a line of its own in a report, and a range where its size is not published. What cuDNN's
convolutions work in is among it: it comes from the allocator, but how much is not known. Invariant:
only what a program called is counted.
"""

from __future__ import annotations

from typing import Any

from ._gpus import MIB, Gpu, Range

# Functions by whose names a library is known to have been used, and what it then takes, in MiB.
# Sources: docs/dry-run.md, "Beside the allocator".
LIBRARIES = {
    "cuBLAS kernels": (("cublas",), (20, 90)),
    "cuDNN kernels": (("cudnn",), (20, 300)),
    "NCCL": (("ncclCommInit",), (150, 1100)),
}
# Workspaces that PyTorch's allocator may cache at once: that in which engines were tried, and that
# of the engine that was chosen. Its search gives back what is cached between two convolutions.
CACHED = 2


def beside(gpu: Gpu, calls: dict[str, Any]) -> dict[str, Range]:
    """What libraries hold, by the calls that were counted."""
    names = [name for name in calls["counted"]
             if not name.endswith(("GetVersion", "GetCudartVersion", "GetProperty"))]
    held = {
        holder: Range(low * MIB, high * MIB)
        for holder, (begins, (low, high)) in LIBRARIES.items()
        if any(name.startswith(begins) for name in names)}
    if calls["convolution_bytes"]:
        held["workspaces of convolutions"] = Range(0, CACHED * calls["convolution_bytes"])
    return {"CUDA context": gpu.context, **held}
