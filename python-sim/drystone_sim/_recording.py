"""What a process recorded, as a course of events: who held what, in which phase, at the peak.

Invariant: a block's bytes are those that the program requested. Kinds come of what is known, never
of sizes: addresses of parameters, gradients and optimizer state, and whether a block that a forward
pass made outlives the beginning of the backward pass. What neither tells is a temporary block.
"""

from __future__ import annotations

import bisect
import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._errors import SimError
from ._values import is_passed

Tree = dict[str, Any]

KINDS = ("parameters", "gradients", "optimizer state", "activations", "workspaces", "buffers",
         "inputs and other", "temporary")
# Marks that say where tensors lie.
PLACED = ("parameters", "buffers", "gradients", "optimizer state", "workspaces")


@dataclass
class Block:
    """A block from its request to its free; times are numbers of events."""

    bytes: int
    begins: int
    phase: str
    layer: str
    place: str
    ends: int | None = None
    kind: str = ""


@dataclass
class Phase:
    """A part of the program between two marks."""

    name: str
    step: int
    peak: int = 0


@dataclass
class Course:
    """What one process asked of one device."""

    device: int
    requests: int = 0
    peak: int = 0
    peak_event: int = 0
    peak_phase: Phase | None = None
    phases: list[Phase] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)
    holders: list[tuple[str, str, str, int, int]] = field(default_factory=list)
    left: int = 0


@dataclass
class Process:
    """One process of the program."""

    file: Path
    told: Tree
    courses: list[Course]

    def place(self, device: int) -> str:
        """A device of this process, as all processes name it."""
        visible = [name for name in self.told["visible"].split(",") if name]
        return visible[device] if device < len(visible) else str(device)


def read(folder: Path) -> list[Process]:
    """What the processes left in a folder, by rank."""
    found = []
    for told in folder.glob("*.json"):
        file = told.with_suffix(".pickle")
        with open(file, "rb") as opened:
            snapshot = pickle.load(opened)  # Our own file: the program's process wrote it.
        about = json.loads(told.read_text())
        # Libraries were given these to work in: on whichever device has such a block.
        # A request of the same microsecond came first.
        about["marks"] += [[time_us + 1, "workspaces", [[None, address]]]
                           for time_us, address in about["calls"].pop("workspaces", [])]
        about["marks"].sort(key=lambda mark: mark[0])
        courses = [
            _Follower(device, about["marks"]).follow(events)
            for device, events in enumerate(snapshot["device_traces"]) if events]
        if courses:
            found.append(Process(file, about, courses))
    if not found:
        raise SimError("the program made no use of CUDA that could be recorded: does it choose the "
                       "device, and does its PyTorch have CUDA (torch.version.cuda)?")
    return sorted(found, key=lambda process: process.told["rank"])


class _Follower:
    """Follows events and marks, each in order, and all by time."""

    def __init__(self, device: int, marks: list[list[Any]]) -> None:
        self.course = Course(device)
        self.marks = marks
        self.live: dict[int, Block] = {}
        self.blocks: list[Block] = []
        self.layers: list[str] = []
        self.phase = Phase("start", 0)
        self.course.phases.append(self.phase)
        self.held = 0
        self.backward: list[int] = []
        self.depth = 0

    def follow(self, events: list[Tree]) -> Course:
        at = 0
        for number, event in enumerate(events):
            while at < len(self.marks) and self.marks[at][0] <= event["time_us"]:
                self._mark(number, self.marks[at])
                at += 1
            if event["action"] == "alloc":
                self._allocate(number, event)
            elif event["action"] == "free_requested":
                self._free(number, event["addr"])
        for mark in self.marks[at:]:
            self._mark(len(events), mark)
        self._finish()
        return self.course

    def _allocate(self, number: int, event: Tree) -> None:
        bytes, course = event["size"], self.course
        layer = self.layers[-1] if self.layers else ""
        block = Block(bytes, number, self.phase.name, layer, _place(event.get("frames", [])))
        self.live[event["addr"]] = block
        self.blocks.append(block)
        course.requests += 1
        self.held += bytes
        self.phase.peak = max(self.phase.peak, self.held)
        if self.held > course.peak:
            course.peak, course.peak_event, course.peak_phase = self.held, number, self.phase

    def _free(self, number: int, address: int) -> None:
        block = self.live.pop(address, None)
        if block is not None:
            block.ends = number
            self.held -= block.bytes

    def _mark(self, number: int, mark: list[Any]) -> None:
        what = mark[1]
        if what in PLACED:
            self._place(what, mark[2])
        elif what == "enter":
            self.layers.append(mark[2])
            if self.phase.name in ("start", "between") and self.depth == 0:
                self._enter("forward")
        elif what == "leave":
            del self.layers[-1:]
        elif what == "backward":
            self.depth += 1
            if self.depth == 1:
                self.backward.append(number)
                self._enter("backward")
        elif what == "backward ends":
            self.depth -= 1
            if self.depth == 0:
                self._enter("between")
        elif what == "update":
            self._enter("update")
        elif what == "step":
            self.phase = Phase("forward", self.phase.step + 1, self.held)
            self.course.phases.append(self.phase)

    def _enter(self, name: str) -> None:
        if self.phase.name != name:
            self.phase = Phase(name, self.phase.step, self.held)
            self.course.phases.append(self.phase)

    def _place(self, kind: str, places: list[list[int]]) -> None:
        """Names the blocks in which tensors lie: a tensor may be a part of one."""
        within = []
        for device, address in places:
            if device not in (None, self.course.device):
                continue
            if address in self.live:
                self.live[address].kind = kind
            else:
                within.append(address)
        addresses = sorted(self.live) if within else []
        for address in within:
            at = bisect.bisect_right(addresses, address) - 1
            if at >= 0 and address < addresses[at] + self.live[addresses[at]].bytes:
                self.live[addresses[at]].kind = kind

    def _finish(self) -> None:
        course = self.course
        held = [block for block in self.blocks if block.begins <= course.peak_event
                and (block.ends is None or block.ends > course.peak_event)]
        holders: dict[tuple[str, str, str], list[int]] = {}
        for block in held:
            kind = block.kind or self._kind(block)
            course.kinds[kind] = course.kinds.get(kind, 0) + block.bytes
            holder = holders.setdefault((kind, block.layer, block.place), [0, 0])
            holder[0] += block.bytes
            holder[1] += 1
        course.left = self.held
        course.holders = sorted(
            ((*who, bytes, blocks) for who, (bytes, blocks) in holders.items()),
            key=lambda holder: -holder[3])

    def _kind(self, block: Block) -> str:
        if block.phase in ("backward", "update"):
            return "temporary"
        at = bisect.bisect_right(self.backward, block.begins)
        border = self.backward[at] if at < len(self.backward) else None
        outlives = border is not None and (block.ends is None or block.ends > border)
        if block.layer and outlives:
            return "activations"
        return "temporary" if block.layer else "inputs and other"


def _place(frames: list[Tree]) -> str:
    """The innermost place outside PyTorch."""
    for frame in frames:
        name = frame["filename"]
        if not is_passed(name) and not name.startswith("<"):
            return f"{name}:{frame['line']}"
    return ""
