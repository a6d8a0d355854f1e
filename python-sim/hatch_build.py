"""What the wheel has beside the package's files: the simulated libraries, the stubs of what PyTorch
imports from NVIDIA's, and the `drystone` command, built by cargo.

The stubs are those of the PyTorch wheels whose `torch/lib` folders `DRYSTONE_SIM_TORCH` names, or
of the one that `cargo xtask torch` installs. Invariant: the wheel is for this platform, and for any
Python 3.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TORCH = "DRYSTONE_SIM_TORCH"


class Hook(BuildHookInterface):
    """Called by hatchling, which finds it by the name of this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the parts, and adds them to what goes into the wheel."""
        root = Path(self.root).parent
        made = root / "target/sim-wheel"
        self._cargo(root, "xtask", "simcuda", "--out", str(made / "simulated"))
        usual = root.glob("target/torch/venv/lib/python*/site-packages/torch/lib")
        wheels = (os.environ[TORCH].split(os.pathsep) if TORCH in os.environ
                  else map(str, usual))
        for number, folder in enumerate(filter(None, wheels)):
            self._cargo(root, "xtask", "stubs", "--wheel-libs", folder,
                        "--out", str(made / f"stubs-{number}"))
        self._cargo(root, "build", "--release", "--package", "drystone-cli")
        libraries = [file for file in sorted(made.glob("*/lib*.so*"))
                     if ".so" in file.suffixes and file.suffix not in (".c", ".ld")]
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["force_include"] = {
            str(root / "target/release/drystone"): "drystone_sim/bin/drystone",
            **{str(file): f"drystone_sim/lib/{file.name}" for file in libraries},
        }

    @staticmethod
    def _cargo(root: Path, *arguments: str) -> None:
        subprocess.run(["cargo", *arguments], cwd=root, check=True, stdout=subprocess.DEVNULL)
