"""Values that a program reads back from the device, where no kernel made any.

A program whose control flow hangs on one takes a way of its own, so every place that reads one is
noted, and the value is chosen: zeros, ones, or random numbers of a seed. Sizes that depend on
values (`nonzero`, boolean masks) are bounds: nothing of zeros, everything of ones, a random share.
"""

from __future__ import annotations

import functools
import os
import random
import sys
from collections import Counter
from typing import Any

from ._variables import VALUES

_read: Counter[tuple[str, str]] = Counter()
_kind, _, _seed = os.environ.get(VALUES, "zeros").partition(":")
_random = random.Random(int(_seed or 0))
_watching = True


def watch(torch: Any) -> None:
    """Notes what is read of tensors from now on, and answers as was asked for."""
    for name in ("item", "__bool__", "__int__", "__float__", "__index__", "tolist"):
        setattr(torch.Tensor, name, _noted(getattr(torch.Tensor, name), name.strip("_"), torch))
    for owner in (torch, torch.Tensor):
        owner.nonzero = _sized(owner.nonzero, torch)
    for name in ("masked_select", "unique", "unique_consecutive"):
        for owner in (torch, torch.Tensor):
            setattr(owner, name, _noted(getattr(owner, name), name, torch))


def ends() -> None:
    """Nothing is noted any more."""
    global _watching
    _watching = False


def read() -> list[list[object]]:
    """What was read: the function, the place, how often."""
    return [[name, place, times] for (name, place), times in _read.most_common()]


def _noted(function: Any, name: str, torch: Any) -> Any:
    @functools.wraps(function)
    def noted(given: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_watched(given):
            return function(given, *args, **kwargs)
        _note(name)
        found = function(given, *args, **kwargs)
        if not isinstance(found, (bool, int, float)):
            return found
        # Among ranks small copies are real, and whole numbers read back are what was copied.
        is_copied = _kind == "zeros" and not isinstance(found, float)
        return found if is_copied else _choose(type(found))
    return noted


def _sized(function: Any, torch: Any) -> Any:
    @functools.wraps(function)
    def sized(given: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_watched(given):
            return function(given, *args, **kwargs)
        _note("nonzero")
        if _kind == "zeros" or kwargs.get("out") is not None:
            return function(given, *args, **kwargs)
        found = int(given.numel() * (1.0 if _kind == "ones" else _random.random()))
        rows = torch.empty(found, given.dim(), dtype=torch.long, device=given.device)
        return rows.unbind(1) if kwargs.get("as_tuple") else rows
    return sized


def _is_watched(given: Any) -> bool:
    return _watching and getattr(given, "is_cuda", False)


def _choose(kind: type) -> bool | int | float:
    if _kind in ("zeros", "ones"):
        return kind(_kind == "ones")
    return _random.random() if kind is float else kind(_random.randrange(2))


def _note(name: str) -> None:
    frame = sys._getframe(2)
    while frame.f_back is not None and f"{os.sep}torch{os.sep}" in frame.f_code.co_filename:
        frame = frame.f_back
    _read[name, f"{frame.f_code.co_filename}:{frame.f_lineno}"] += 1
