"""What each allocator would hold of a recording: the `drystone` command replays it through them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _libraries
from ._errors import SimError

Tree = dict[str, Any]

# The form of the command's answers.
SCHEMA = 1
NAMES = {
    "torch-native": "native", "torch-expandable": "expandable", "drystone-vmm": "Drystone",
}


@dataclass
class Held:
    """One allocator: in bytes, its peaks with room to spare, and its answer on the device."""

    name: str
    allocated: int
    reserved: int
    # On the device: requests refused, and the smallest on which none is.
    refused: int
    smallest: int | None


@dataclass
class Replayed:
    """A recording of one device, through every allocator."""

    requested: int
    held: list[Held]


def replay(recording: Path, capacity: int) -> list[Replayed]:
    """Replays each device's part with room to spare, and on a device of that many bytes."""
    ample = _ask("compare", "--kernels", "off", str(recording))
    tight = _ask("compare", "--kernels", "off", "--capacity", str(capacity), str(recording))
    fits = _ask("fit", str(recording))
    return [_replayed(*parts) for parts in zip(ample, tight, fits, strict=True)]


def convert(recording: Path, device: int, table: Path) -> None:
    """Writes what a device was asked for as a table; devices count those that were asked at all."""
    _run("convert", "--device", str(device), str(recording), str(table))


def _replayed(ample: Tree, tight: Tree, fits: Tree) -> Replayed:
    refused = {run["allocator"]: run["out_of_memory_events"] for run in tight["runs"]}
    smallest = {fit["allocator"]: fit["capacity_bytes"] for fit in fits["fits"]}
    held = [
        Held(NAMES[run["allocator"]], run["peak_allocated_bytes"], run["peak_reserved_bytes"],
             refused[run["allocator"]], smallest[run["allocator"]])
        for run in ample["runs"] if run["allocator"] in NAMES]
    held.sort(key=lambda one: list(NAMES.values()).index(one.name))
    return Replayed(ample["summary"]["peak_requested_bytes"], held)


def _ask(what: str, *arguments: str) -> list[Tree]:
    """The traces of an answer."""
    found = json.loads(_run(what, "--json", *arguments))
    if found.get("schema") != SCHEMA:
        raise SimError(f"{_libraries.command()} answers in form {found.get('schema')}, this "
                       f"package knows {SCHEMA}: install both from one release")
    return found["traces"]


def _run(what: str, *arguments: str) -> str:
    """The command's output; 1 is the code where an allocator ran out of memory."""
    command = _libraries.command()
    done = subprocess.run([command, what, *arguments], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise SimError(f"{command} {what}: {lines[-1]}")
    return done.stdout
