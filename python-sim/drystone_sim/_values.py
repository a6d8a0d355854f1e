"""Values that a program reads back from the device, where no kernel made any.

A program whose control flow hangs on one takes a way of its own, so every place that reads one is
noted, and the value is chosen: zeros, ones, or random numbers of a seed.
"""

from __future__ import annotations

import functools
import os
import random
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from ._variables import VALUES

OURS = str(Path(__file__).resolve().parent)

_read: Counter[tuple[str, str]] = Counter()
_kind, _, _seed = os.environ.get(VALUES, "zeros").partition(":")
_random = random.Random(int(_seed or 0))
_watching = True
# Values that are known without a kernel, by the tensor that holds them.
_known: dict[int, float] = {}


def watch(torch: Any) -> None:
    """Notes what is read of tensors from now on, and answers as was asked for."""
    for name in ("item", "__bool__", "__int__", "__float__", "__index__", "tolist"):
        setattr(torch.Tensor, name, _noted(getattr(torch.Tensor, name), name.strip("_")))


def know(tensor: Any, value: float) -> None:
    """What a tensor of the device holds, as long as it is read before another one is known."""
    _known[id(tensor)] = value


def forget() -> None:
    """No tensor's value is known any more."""
    _known.clear()


def ends() -> None:
    """Nothing is noted any more."""
    global _watching
    _watching = False


def kind() -> str:
    """`zeros`, `ones` or `random`."""
    return _kind


def seed() -> int:
    """Of random values."""
    return int(_seed or 0)


def read() -> list[list[object]]:
    """What was read: the function, the place, how often."""
    return [[name, place, times] for (name, place), times in _read.most_common()]


def _noted(function: Any, name: str) -> Any:
    @functools.wraps(function)
    def noted(given: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_watched(given):
            return function(given, *args, **kwargs)
        note(name)
        found = function(given, *args, **kwargs)
        if id(given) in _known:
            return type(found)(_known[id(given)])
        if not isinstance(found, (bool, int, float)):
            return found
        # Among ranks small copies are real, and whole numbers read back are what was copied.
        is_copied = _kind == "zeros" and not isinstance(found, float)
        return found if is_copied else _choose(type(found))
    return noted


def is_watched(given: Any) -> bool:
    """Whether a tensor is of a device, and what is read of it to be noted."""
    return _watching and getattr(given, "is_cuda", False)


def _choose(kind: type) -> bool | int | float:
    if _kind in ("zeros", "ones"):
        return kind(_kind == "ones")
    return _random.random() if kind is float else kind(_random.randrange(2))


def note(name: str) -> None:
    """Notes that whoever called this reads a value, and the program's line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_passed(frame.f_code.co_filename):
        frame = frame.f_back
    # A thread of a backward pass has no line of the program's.
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "a backward pass"
    _read[name, place] += 1


def is_passed(file: str) -> bool:
    """Whether a place is PyTorch's or ours, and so none of the program."""
    return f"{os.sep}torch{os.sep}" in file or file.startswith(OURS)
