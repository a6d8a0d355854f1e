"""Holds the requests of a dry run against those that a real GPU's allocator was given.

    python requests.py RECORDED.pickle DRY.pickle

Both are files of `torch.cuda.memory._dump_snapshot()`, of the same program and model. Requests and
frees are compared in their order, by their bytes; what one has and the other has not is shown with
the line that asked. Ends with 0 where at least 99 % are equal.
"""

from __future__ import annotations

import difflib
import pickle
import sys
from collections import Counter
from typing import Any

GOAL = 0.99
SHOWN = 10
ACTIONS = {"alloc": "request", "free_requested": "free"}

Event = dict[str, Any]


def read(file: str) -> list[Event]:
    """What the program asked of its first device that it used, oldest first."""
    with open(file, "rb") as opened:
        # Only give it files that you trust: reading one may run code.
        traces = pickle.load(opened)["device_traces"]
    events = next((trace for trace in traces if trace), [])
    return [event for event in events if event["action"] in ACTIONS]


def place(event: Event) -> str:
    """The innermost line of Python outside PyTorch."""
    for frame in event.get("frames", []):
        name = frame["filename"]
        if name.endswith(".py") and "/torch/" not in name:
            return f"{name.rsplit('/', 1)[-1]}:{frame['line']}"
    return "the backward pass"


def peak(events: list[Event]) -> int:
    """The most that was held of what these events asked for, in bytes."""
    held, most, own = 0, 0, {}
    for event in events:
        if event["action"] == "alloc":
            own[event["addr"]] = event["size"]
            held += event["size"]
            most = max(most, held)
        else:
            held -= own.pop(event["addr"], 0)
    return most


def main(recorded: str, dry: str) -> int:
    """Prints how many are equal."""
    sides = read(recorded), read(dry)
    keys = [[(event["action"], event["size"]) for event in side] for side in sides]
    matcher = difflib.SequenceMatcher(None, *keys, autojunk=False)
    equal = sum(block.size for block in matcher.get_matching_blocks())
    total = max(map(len, keys))
    share = equal / total if total else 0.0
    print(f"{len(keys[0]):,} requests and frees recorded, {len(keys[1]):,} in the dry run: "
          f"{equal:,} equal in bytes and order ({share:.2%})")
    print(f"most held of them: {peak(sides[0]):,} bytes recorded, {peak(sides[1]):,} in the dry "
          "run")
    others: Counter[tuple[str, str, int, str]] = Counter()
    for tag, *ends in matcher.get_opcodes():
        if tag != "equal":
            for side, (low, high), name in zip(
                    sides, (ends[:2], ends[2:]), ("recorded", "dry run"), strict=True):
                for event in side[low:high]:
                    others[name, ACTIONS[event["action"]], event["size"], place(event)] += 1
    for (name, what, bytes, where), times in others.most_common(SHOWN):
        print(f"  only {name}: {times:,} times a {what} of {bytes:,} bytes, {where}")
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
