"""The host of a GPU that has no memory of its own, for the programs of this folder, which say how
much of their work was done before it was short. They are no part of `cargo xtask bugs`: what they
came to, with the command, is in docs/evidence/measurements.md.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile

import torch

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from common import GIB  # noqa: E402

driver = ctypes.CDLL("libcuda.so.1")
is_simulated = hasattr(driver, "simcuda_lowest_host_bytes")
if is_simulated:
    driver.simcuda_lowest_host_bytes.restype = ctypes.c_uint64


class Host:
    """The host of a GPU that has no memory of its own, and who watches how much is available: below
    so large a part of all, the program is ended. Made before anything is asked of CUDA."""

    def __init__(self, gate: float):
        self.root, self.gate, self.programs = "/", gate, 0
        if is_simulated:
            # Where the simulated one tells what it has, and Drystone reads it.
            self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            self.root = os.environ["DRYSTONE_HOST_ROOT"] = self.folder.name
        _, self.total = torch.cuda.mem_get_info()
        self.programs = self.total // 32

    def available(self) -> int:
        with open(os.path.join(self.root, "proc/meminfo"), encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if "MemAvailable" in line)

    def takes(self, size: float) -> None:
        """Programs of the host take so much more. A real one has its own."""
        self.programs += int(size)
        if is_simulated:
            driver.simcuda_host_programs(0, ctypes.c_uint64(self.programs))

    def reads(self, size: float) -> None:
        """Files are read, which stay in the page cache."""
        if is_simulated:
            driver.simcuda_read_files(0, ctypes.c_uint64(int(size)))

    def run(self, step, items: list, before=lambda: None) -> None:
        """Does a step for each, and says how many were left when that ended."""
        done, why = 0, "done"
        try:
            before()
            for item in items:
                step(item)
                if self.available() < self.gate * self.total:
                    why = "ended by who watches"
                    break
                done += 1
        except torch.cuda.OutOfMemoryError as error:
            why = str(error).splitlines()[0]
        except (RuntimeError, torch.AcceleratorError) as error:
            why = f"host stops: {error}".splitlines()[0]
        lowest = driver.simcuda_lowest_host_bytes(0) if is_simulated else self.available()
        print(f"{done} of {len(items)}, {lowest / GIB:.2f} GiB available at least; {why}")
        print(f"came to: {len(items) - done} left; right: 0 left", flush=True)
