"""The command `drystone` of this package: the program that is part of the wheel.

Invariant: nothing of Python is left once it runs.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAME = "drystone"


def path() -> str | None:
    """Where the program is: in this package, else on the way of programs; None if it is not."""
    own = Path(__file__).with_name("_bin") / NAME
    return str(own) if own.exists() else shutil.which(NAME)


def main() -> None:
    """Becomes the program."""
    program = Path(__file__).with_name("_bin") / NAME
    try:
        os.execv(program, [NAME, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"drystone: cannot run {program}: {error}; install the drystone wheel for this "
                 "platform")
