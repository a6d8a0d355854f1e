"""The command `drystone` of this package: the program that is part of the wheel, and dry runs,
which are another package's.

Invariant: nothing of Python is left once the program runs.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAME = "drystone"
DRY_RUN = "dry-run"


def path() -> str | None:
    """Where the program is: in this package, else on the way of programs; None if it is not."""
    own = Path(__file__).with_name("_bin") / NAME
    return str(own) if own.exists() else shutil.which(NAME)


def main() -> None:
    """Becomes the program, or makes a dry run."""
    if sys.argv[1:2] == [DRY_RUN]:
        dry_run()
    program = Path(__file__).with_name("_bin") / NAME
    try:
        os.execv(program, [NAME, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"drystone: cannot run {program}: {error}; install the drystone wheel for this "
                 "platform")


def dry_run() -> None:
    """Hands over to the package with the simulated device, which does not need this one."""
    try:
        from drystone_sim.__main__ import main as simulated
    except ImportError:
        sys.exit("drystone: a dry run needs the simulated device: install the drystone-sim wheel")
    sys.exit(simulated())
