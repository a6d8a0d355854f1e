"""What PyTorch's own allocators would hold, as the `drystone` command tells by replaying.

Invariant: where it cannot be told, the answer is the reason, in words, and never a guess.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

from . import _command
from ._errors import DrystoneError

Tree = dict[str, Any]

TIMEOUT_S = 300
# The form of the command's answers.
SCHEMA = 1
NAMES = {
    "drystone-vmm": "Drystone", "drystone-malloc": "Drystone, plain memory",
    "torch-native": "PyTorch", "torch-expandable": "PyTorch, expandable segments",
    "torch-async": "PyTorch, cudaMallocAsync",
}


@dataclass
class Held:
    """What one allocator held while it was given all of a recording's requests."""

    name: str
    reserved: int
    per_requested: float
    driver_calls: int
    refused: int


@dataclass
class Peak:
    """The most that one stream or pool was asked for at one time."""

    name: str
    requested: int
    allocations: int


@dataclass
class Holder:
    """A place in the program, and what it held at the peak."""

    name: str
    held: int
    blocks: int


@dataclass
class Replayed:
    """A recording of one device."""

    name: str
    requested: int
    held: list[Held] = field(default_factory=list)
    peaks: list[Peak] = field(default_factory=list)
    holders: list[Holder] = field(default_factory=list)


def history() -> Tree | None:
    """The snapshot with the history of allocations, where PyTorch records one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        found = torch.cuda.memory._snapshot()
    except RuntimeError:
        # This way PyTorch has no snapshots.
        return None
    return found if any(found["device_traces"]) else None


def is_recording() -> bool:
    """Whether PyTorch records a history, be there anything in it or not."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        return torch._C._cuda_isHistoryEnabled()
    except RuntimeError:
        # This way PyTorch has no history.
        return False


def replay(
    recorded: Tree | None, recording: str | os.PathLike[str] | None,
) -> list[Replayed] | str:
    """Replays the history, or the file, or says why not."""
    if recording is not None and not os.path.exists(recording):
        raise DrystoneError(f"there is no recording {os.fspath(recording)}")
    if recorded is None and recording is None:
        return ("not known: nothing is recorded. Call torch.cuda.memory._record_memory_history() "
                "under drystone.enable(), or give recording= a snapshot of this program made "
                "with PyTorch's own allocator")
    command = _command.path()
    if command is None:
        return ("not known: the drystone command is neither in this build of the package nor on PATH "
                "(cargo install --path crates/tools/cli)")
    if recording is not None:
        return _of_file(command, os.fspath(recording))
    with tempfile.TemporaryDirectory(prefix="drystone-") as folder:
        path = os.path.join(folder, "history.pickle")
        with open(path, "wb") as file:
            pickle.dump(recorded, file)
        return _of_file(command, path)


def _of_file(command: str, path: str) -> list[Replayed]:
    compared = _ask(command, "compare", path)
    inspected = _ask(command, "inspect", path)
    return [_replayed(*both) for both in zip(compared["traces"], inspected["traces"], strict=True)]


def _replayed(compared: Tree, inspected: Tree) -> Replayed:
    summary = inspected["summary"]
    found = Replayed(inspected["trace"], summary["peak_requested_bytes"])
    found.held = [
        Held(NAMES.get(run["allocator"], run["allocator"]), run["peak_reserved_bytes"],
             run["reserved_per_requested"] or 0.0, run["driver_calls"],
             run["out_of_memory_events"])
        for run in compared["runs"]]
    for kind in ("pool", "stream"):
        parts = summary[f"{kind}s"]
        if len(parts) > 1:
            found.peaks += [
                Peak(f"{kind} {number}", part["peak_bytes"], part["allocations"])
                for number, part in enumerate(parts)]
    # A trace without stacks has no places.
    for one in (inspected["recorded"] or {}).get("peak_holders", []):
        place = one["at"] or "no Python stack"
        place += f", from {one['from']}" if one["from"] else ""
        found.holders.append(Holder(place, one["bytes"], one["blocks"]))
    return found


def _ask(command: str, what: str, path: str) -> Tree:
    """A report of the command's, which exits with 1 where an allocator ran out of memory."""
    try:
        done = subprocess.run(
            [command, what, "--json", path], capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DrystoneError(f"{command} {what} {path}: {error}") from error
    if done.returncode not in (0, 1):
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise DrystoneError(f"{command} {what}: {lines[-1]}")
    try:
        found = json.loads(done.stdout)
    except ValueError as error:
        raise DrystoneError(f"{command} is not the drystone command: {error}") from error
    if found.get("schema") != SCHEMA:
        raise DrystoneError(
            f"{command} answers in form {found.get('schema')}, this package knows {SCHEMA}: "
            "install both from one release")
    return found
