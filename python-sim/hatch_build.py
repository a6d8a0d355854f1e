"""What the wheel has beside the package's files: the simulated libraries, the stubs of what PyTorch
imports from NVIDIA's, and the `drystone` command.

`cargo xtask sim-wheel` makes them for any machine, and names their folder. Where it was not asked,
they are built here for this machine: the stubs are those of the PyTorch wheels whose `torch/lib`
folders `DRYSTONE_SIM_TORCH` names, else of the PyTorch beside which this is installed and of the one
that `cargo xtask torch` installs. Invariant: the wheel is for one platform, and for any Python 3.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS, PLATFORM = "DRYSTONE_SIM_PARTS", "DRYSTONE_SIM_PLATFORM"
TORCH = "DRYSTONE_SIM_TORCH"
NOTICES = "THIRD-PARTY-NOTICES"
# What libraries are made of, beside them.
SOURCES = ".c", ".ld", ".o"


class Hook(BuildHookInterface):
    """Called by hatchling, which finds it by the name of this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds to what goes into the wheel, built now if it was not before."""
        named = os.environ.get(PARTS)
        parts = Path(named) if named else self._built(Path(self.root).parent)
        # Beside each library may lie what it was made of.
        libraries = [file for folder in ("lib", "stubs")
                     for file in sorted(parts.glob(f"{folder}/lib*.so*"))
                     if ".so" in file.suffixes and file.suffix not in SOURCES]
        platform = os.environ.get(PLATFORM, sysconfig.get_platform())
        build_data["tag"] = f"py3-none-{platform.replace('-', '_').replace('.', '_')}"
        build_data["pure_python"] = False
        build_data["force_include"] = {
            str(parts / "bin/drystone"): "drystone_sim/bin/drystone",
            **{str(file): f"drystone_sim/lib/{file.name}" for file in libraries},
            **{str(file): f"drystone_sim/{file.name}" for file in parts.glob(NOTICES)},
        }

    def _built(self, root: Path) -> Path:
        parts = root / "target/sim-parts/local"
        self._cargo(root, "xtask", "simcuda", "--out", str(parts / "lib"))
        beside = Path(sysconfig.get_path("platlib"), "torch/lib")
        usual = [*root.glob("target/torch/venv/lib/python*/site-packages/torch/lib"),
                 *([beside] if beside.exists() else [])]
        wheels = (os.environ[TORCH].split(os.pathsep) if TORCH in os.environ
                  else map(str, usual))
        if folders := list(filter(None, wheels)):
            self._cargo(root, "xtask", "stubs", "--wheel-libs", *folders,
                        "--out", str(parts / "stubs"))
        self._cargo(root, "build", "--release", "--package", "drystone-cli",
                    "--features", "parquet")
        command = parts / "bin/drystone"
        command.parent.mkdir(exist_ok=True)
        command.write_bytes((root / "target/release/drystone").read_bytes())
        command.chmod(0o755)
        return parts

    @staticmethod
    def _cargo(root: Path, *arguments: str) -> None:
        subprocess.run(["cargo", *arguments], cwd=root, check=True, stdout=subprocess.DEVNULL)
