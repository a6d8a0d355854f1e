"""Who holds memory: by line of the program, and by what it is for.

Invariant: nothing of a device is used, and no program's own code runs, to tell.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterable
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
        held[kind] += _new_bytes(torch, one, device, seen)

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


def exceptions() -> list[BaseException]:
    """Every exception that is kept."""
    [found] = _instances(BaseException)
    return found


def kept_by(exceptions: Iterable[BaseException], device: int) -> list[_replay.Holder]:
    """Live blocks that variables of functions refer to which an exception ended, by the exception
    and where it was raised, the most memory first. They live as long as the exception does."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    running = {id(frame) for frame in _running_frames()}
    found = []
    with torch._C.DisableTorchFunction():
        for exception in exceptions:
            holder = _replay.Holder("", 0, 0)
            seen: set[int] = set()
            # Not the exception's own word for it.
            traceback = BaseException.__traceback__.__get__(exception)
            while traceback is not None:
                frame = traceback.tb_frame
                if id(frame) not in running:
                    holder.held += sum(
                        _new_bytes(torch, one, device, seen) for one in _variables(frame))
                code = frame.f_code
                holder.name = (f"{type(exception).__name__} at {code.co_filename}:"
                               f"{traceback.tb_lineno} {code.co_name}")
                traceback = traceback.tb_next
            holder.blocks = len(seen)
            if holder.held:
                found.append(holder)
    return sorted(found, key=lambda holder: -holder.held)


def _running_frames() -> Iterable[Any]:
    for frame in sys._current_frames().values():
        while frame is not None:
            yield frame
            frame = frame.f_back


def _variables(frame: Any) -> Iterable[Any]:
    """What a frame refers to, and what is in lists there. Its `f_locals` would keep it all."""
    for one in gc.get_referents(frame):
        if type(one) is dict:
            # Of a module that failed these are all of its names, which stay anyway.
            if one is not frame.f_globals:
                yield from list(one.values())
        elif type(one) in (list, tuple):
            yield from list(one)
        else:
            yield one


def _new_bytes(torch: Any, one: Any, device: int, seen: set[int]) -> int:
    """Of a tensor's memory, if it is one on the device and its memory was not seen before."""
    # Of the type alone: an object's own attributes may be a program.
    if torch.Tensor not in type(one).__mro__:
        return 0
    # A tensor that a compiler only traces has no memory, and says so; one of a program's own type
    # may say anything.
    with contextlib.suppress(Exception):
        # A part of a distributed tensor is here.
        one = getattr(one, "_local_tensor", one)
        if one.device != torch.device("cuda", device):
            return 0
        storage = one.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            return storage.nbytes()
    return 0


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
