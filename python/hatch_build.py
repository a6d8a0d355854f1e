"""What the wheel has beside the package's files: `libdrystone.so`, built by cargo, its header, and
the page of reports.

Invariant: the wheel is for this platform, and for any Python 3.
"""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface):
    """Called by hatchling, which finds it by the name of this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Builds the library, and adds to what goes into the wheel."""
        done = subprocess.run(
            ["cargo", "xtask", "capi"], cwd=Path(self.root).parent, check=True,
            stdout=subprocess.PIPE, text=True)
        made = Path(done.stdout.splitlines()[-1])
        page = Path(self.root).parent / "crates/tools/cli/src/report/html"
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False
        build_data["force_include"] = {
            str(made / "lib/libdrystone.so"): "drystone/libdrystone.so",
            str(made / "include/drystone.h"): "drystone/_cpp/drystone.h",
            **{str(file): f"drystone/_html/{file.name}"
               for file in page.iterdir() if file.suffix != ".md"},
        }
