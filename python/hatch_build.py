"""What the wheel has beside the package's files: the libraries, the command, C's header, the page of
reports, and what is compiled for releases of PyTorch.

Invariant: the wheel is for one platform, and for any Python 3. Where nothing was built before, as
for a wheel for all machines, cargo builds it now, and says so to who waits.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NEEDS = ("building drystone from its source needs Rust 1.95 or later (rustup), a C compiler and "
         "strip; wheels need none of them")


class Hook(BuildHookInterface):
    """Called by hatchling, which finds it by the name of this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds to what goes into the wheel, built now if it was not before."""
        here = Path(self.root)
        # In the source archive all lies side by side.
        source = here if (here / "Cargo.toml").exists() else here.parent
        named = os.environ.get("DRYSTONE_NATIVE")
        made = Path(named) if named else _built(source)
        compiled = os.environ.get("DRYSTONE_COMPILED")
        page = source / "crates/tools/cli/src/report/html"
        platform = os.environ.get("DRYSTONE_PLATFORM", sysconfig.get_platform())
        build_data["tag"] = f"py3-none-{platform.replace('-', '_').replace('.', '_')}"
        build_data["pure_python"] = False
        build_data["force_include"] = {
            str(made / "include/drystone.h"): "drystone/_cpp/drystone.h",
            str(made / "bin/drystone"): "drystone/_bin/drystone",
            **_all(made / "lib", "drystone", "*.so"),
            **_all(page, "drystone/_html", "*.[!m]*"),
            **(_all(Path(compiled), "drystone/_compiled", "*") if compiled else {}),
        }


def _all(folder: Path, to: str, pattern: str) -> dict[str, str]:
    return {str(file): f"{to}/{file.name}" for file in sorted(folder.glob(pattern))}


def _built(source: Path) -> Path:
    _tell("drystone: building the library and the command with cargo, which takes some minutes")
    try:
        done = subprocess.run(
            ["cargo", "xtask", "native"], cwd=source, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise SystemExit(f"drystone: {NEEDS}: {error}") from error
    if done.returncode != 0:
        raise SystemExit(f"drystone: {NEEDS}; cargo's own words are above")
    _tell("drystone: built")
    return Path(done.stdout.splitlines()[-1])


def _tell(text: str) -> None:
    """To the terminal: installers keep what a build prints to themselves."""
    try:
        with open("/dev/tty", "w") as terminal:
            print(f"\n{text}", file=terminal)
    except OSError:
        print(text, flush=True)
