"""Running Python programs in interpreters of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
MIB = 1 << 20
GIB = 1 << 30


def run(
    *command: str, folder: Path = FOLDER, **changes: str | None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command; a variable that is to be None is taken away."""
    environment = {**os.environ, **{key: text for key, text in changes.items() if text is not None}}
    for key, text in changes.items():
        if text is None:
            environment.pop(key, None)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


def python(code: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a program given as text."""
    return run(sys.executable, "-B", "-c", textwrap.dedent(code), **changes)


def answer(*command: str, folder: Path = FOLDER, **changes: str | None) -> Any:
    """The last line of a program that must succeed, as JSON."""
    done = run(*command, folder=folder, **changes)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
