"""A function that PyTorch compiles, with graphs of its own where that is possible.

    compiled.py native|expandable|plugin|compiled
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from pathlib import Path

from cuda import skip
from train import begin, checked


def tell_triton() -> None:
    """Names it the driver that is loaded: where it is not in the linker's cache, it finds none."""
    ctypes.CDLL("libcuda.so.1")
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = [line.split()[-1] for line in lines if "/libcuda.so" in line]
    # A folder that has the file by that name: what is loaded may be what a link there leads to.
    for folder in {Path(path).parent for path in paths}:
        if (folder / "libcuda.so.1").exists():
            os.environ.setdefault("TRITON_LIBCUDA_PATH", str(folder))


def main() -> None:
    route = begin(sys.argv[1:])
    import torch
    if not any(map(shutil.which, [os.environ.get("CC", "cc"), "gcc", "clang"])):
        skip("Triton needs a C compiler, and there is none")
    try:
        import triton  # noqa: F401
    except ImportError as error:
        skip(f"no Triton: {error}")
    tell_triton()
    # Trees of graphs are what a plug-in cannot have.
    mode = "default" if route == "plugin" else "reduce-overhead"

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x) * 2 + 1

    compiled, given = torch.compile(function, mode=mode), torch.randn(128, 128, device="cuda")
    for _ in range(3):
        found = compiled(given).clone()
    came_to = checked(torch.allclose(found, function(given), atol=1e-5))
    print(json.dumps({"way": route, "mode": mode, "result": came_to}))
    sys.exit(came_to.startswith("failed"))


if __name__ == "__main__":
    main()
