"""Where a run writes: its results, each file whole or not at all, and what it needs for a while.

Invariant: a folder that takes nothing, or from which nothing can be run, is told before any step; a
disk that is full later costs a line on the screen, and no step.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from page import page

#: How the name of the folder for a while begins.
SCRATCH = ".scratch-"


def scratch(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder for a while in that of the results, from now on that of all temporary files: the
    usual one may be full, or have programs refused. The steps are told."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder.resolve())
    except OSError as error:
        sys.exit(f"{error}: --out names a folder for the results")
    if os.statvfs(made.name).f_flag & os.ST_NOEXEC:
        sys.exit(f"programs cannot be run from {folder}: --out names another folder")
    tempfile.tempdir = os.environ["TMPDIR"] = made.name
    return made


def earlier(folder: Path) -> dict[str, object]:
    """What an earlier run left there; nothing, if it cannot be read."""
    file = folder / "results.json"
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        print(f"{file} cannot be read: {error}", flush=True)
        return {}
    print(f"goes on from {file}", flush=True)
    return found


def write(folder: Path, results: dict[str, object]) -> None:
    texts = {"results.json": json.dumps(results, indent=1), "results.html": page(results)}
    for name, text in texts.items():
        part = folder / f".{name}.part"
        try:
            part.write_text(text)
            part.replace(folder / name)
        except OSError as error:
            print(f"{name} is not written: {error}", flush=True)
