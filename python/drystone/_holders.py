"""Who holds memory: by line of the program, and by what it is for.

Invariant: nothing of a device is used, and no program's own code runs, to tell.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from typing import Any

from . import _figures, _replay

NO_STACK = "no Python stack"


def holders(segments: list[dict[str, Any]]) -> list[_replay.Holder]:
    """Live blocks by the place that allocated them, the most memory first."""
    found: dict[str, _replay.Holder] = {}
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == _figures.LIVE:
                name = place_of(block.get("frames") or [])
                holder = found.setdefault(name, _replay.Holder(name, 0, 0))
                holder.held += block["requested_size"]
                holder.blocks += 1
    return sorted(found.values(), key=lambda holder: -holder.held)


def place_of(frames: list[dict[str, Any]]) -> str:
    """The innermost Python frame outside of PyTorch, else the innermost."""
    python = [frame for frame in frames if frame["filename"].endswith(".py")
              or frame["filename"].startswith("<")]
    outside = (frame for frame in python if "/torch/" not in frame["filename"])
    frame = next(outside, python[0] if python else None)
    if frame is None:
        return NO_STACK
    return f"{frame['filename']}:{frame['line']} {frame['name']}"


def kinds(device: int) -> dict[str, int]:
    """Bytes of parameters, gradients and states of optimizers; none if there are no parameters, or
    no PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    seen: set[int] = set()
    held = dict.fromkeys(("parameters", "gradients", "optimizer state"), 0)

    def add(kind: str, one: Any) -> None:
        # A part of a distributed tensor is here.
        one = getattr(one, "_local_tensor", one)
        if not isinstance(one, torch.Tensor) or one.device != torch.device("cuda", device):
            return
        # A tensor that a compiler only traces has no memory, and says so.
        with contextlib.suppress(RuntimeError):
            storage = one.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                held[kind] += storage.nbytes()

    parameters, optimizers = _instances(torch.nn.Parameter, torch.optim.Optimizer)
    with torch._C.DisableTorchFunction():
        for one in parameters:
            add("parameters", one)
        for one in parameters:
            add("gradients", one.grad)
        for optimizer in optimizers:
            for state in list(optimizer.state.values()):
                for value in list(state.values()) if isinstance(state, dict) else ():
                    add("optimizer state", value)
    return held if held["parameters"] else {}


def _instances(*kinds: type) -> list[list[Any]]:
    """Every object of some types. Of the type alone, which is looked at once: an object's own word
    for its class may be a program."""
    found: list[list[Any]] = [[] for _ in kinds]
    lists: dict[type, list[Any] | None] = {}
    for one in gc.get_objects():
        kind = type(one)
        if kind not in lists:
            lists[kind] = next(
                (found[at] for at, wanted in enumerate(kinds) if wanted in kind.__mro__), None)
        into = lists[kind]
        if into is not None:
            into.append(one)
    return found
