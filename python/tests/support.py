"""Running Python programs in interpreters of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import unittest
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
MIB = 1 << 20
GIB = 1 << 30


def since(major: int, minor: int) -> Callable[..., Any]:
    """Skips a test of what older versions of PyTorch do not have."""
    from drystone._enable import numbers
    is_older = numbers(version("torch")) < (major, minor)
    return unittest.skipIf(is_older, f"PyTorch {major}.{minor} added it")


def segments_of(pool: tuple[int, int]) -> list[dict[str, Any]]:
    """A pool's part of a snapshot; before 2.8 PyTorch tells the whole only."""
    import torch
    segments = torch.cuda.memory_snapshot()
    return [one for one in segments if tuple(one["segment_pool_id"]) == tuple(pool)]


def run(
    *command: str, folder: Path = FOLDER, input: str | None = None, **changes: str | None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command; a variable that is to be None is taken away."""
    environment = {**os.environ, **{key: text for key, text in changes.items() if text is not None}}
    for key, text in changes.items():
        if text is None:
            environment.pop(key, None)
    return subprocess.run(
        command, cwd=folder, env=environment, input=input, capture_output=True, text=True,
        timeout=240)


def python(code: str, **changes: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a program given as text."""
    return run(sys.executable, "-B", "-c", textwrap.dedent(code), **changes)


def answer(*command: str, folder: Path = FOLDER, **changes: str | None) -> Any:
    """The last line of a program that must succeed, as JSON."""
    done = run(*command, folder=folder, **changes)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
