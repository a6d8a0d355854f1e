"""Who holds a device's memory, told in the error that says that there is none left.

Invariant: nothing here raises, takes memory of a device, or takes more than a small share of the
program's time; what cannot be told is left out. What the handler of an exception keeps, in which
the program tries again, is told always, since it is looked for there alone. It runs in a thread of
its own, so that signals, tracers and compilers of the program's frames do not meet it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import time
from collections.abc import Iterable
from typing import Any

from . import _library

# Of a program's time, what telling may take: one part of so many.
SHARE = 20
PLACES_MAX = 3
# How many exceptions are followed from the one that is handled.
HANDLED_MAX = 8
# What a block with a stack takes of a snapshot, measured: PyTorch looks its lines up.
BLOCK_S = 50e-6
# Of a request, what an exception must keep to be told of: one part of so many.
KEPT_SHARE = 20

_TELL = ctypes.CFUNCTYPE(
    ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
# From when on everything is told again.
_next_s = 0.0
_began_s = time.monotonic()


def install() -> None:
    """Has the library ask here whenever PyTorch is told that there is no memory left."""
    _library.library().drystone_torch_describe_with(_tell)
    # Whoever fails later must not wait for an interpreter that is gone.
    atexit.register(_library.library().drystone_torch_describe_with, None)


@_TELL
def _tell(device: int, requested: int, room: Any, size: int) -> int:
    """The library asks it in a thread of its own, once at a time."""
    global _next_s
    began_s = time.monotonic()
    # One right after another goes without what takes long.
    is_soon = began_s < _next_s
    try:
        from ._text import printable
        sentences = _kept(device, requested, _handled()) if is_soon else _sentences(device, requested)
        text = "\n".join(map(printable, sentences)).encode(errors="replace")[:size]
        ctypes.memmove(room, text, len(text))
        return len(text)
    except Exception:
        return 0
    finally:
        if not is_soon:
            now_s = time.monotonic()
            _next_s = now_s + SHARE * (now_s - began_s)


def _sentences(device: int, requested: int) -> Iterable[str]:
    from ._figures import text_of_bytes
    from ._holders import exceptions, kinds
    stats = _library.stats(device)
    held = kinds(device)
    if held:
        rest = stats["allocated_bytes"]["current"] - sum(held.values())
        held["everything else, such as activations,"] = max(rest, 0)
        yield "By kind: " + ", ".join(
            f"{kind} {text_of_bytes(count)}" for kind, count in held.items()) + "."
    found = places(device) if _may_look(stats["allocations"]["current"]) else []
    if found:
        yield "Held most: " + "; ".join(
            f"{text_of_bytes(one.held)} at {one.name} ({one.blocks} blocks)"
            for one in found[:PLACES_MAX]) + "."
    yield from _kept(device, requested, exceptions())
    processes = processes_of(device)
    own = processes.pop(os.getpid(), None)
    outside = max((own or 0) - stats["reserved_bytes"]["current"], 0)
    if own is not None and (outside or processes):
        others = [f"process {number} {text_of_bytes(count)}"
                  for number, count in sorted(processes.items(), key=lambda item: -item[1])]
        yield (f"Beside PyTorch: this process {text_of_bytes(outside)}"
               f"{''.join(f', {other}' for other in others)}.")


def _may_look(blocks: int) -> bool:
    """Whether a snapshot of so many blocks takes a small share of the time that the process ran."""
    return blocks * BLOCK_S * SHARE <= time.monotonic() - _began_s


def _kept(
    device: int, requested: int, exceptions: Iterable[BaseException],
) -> Iterable[str]:
    """What one of some exceptions keeps, the one that keeps most."""
    from ._figures import text_of_bytes
    from ._holders import kept_by
    for one in kept_by(exceptions, device)[:1]:
        if one.held * KEPT_SHARE >= requested:
            yield (f"{text_of_bytes(one.held)} are in variables of functions that an exception "
                   f"ended, {one.name}, as long as it is kept: leave its handler, and drop it.")


def _handled() -> list[BaseException]:
    """The exceptions in whose handlers the program's threads are, with those that they came of."""
    found: list[BaseException] = []
    for one in sys._current_exceptions().values():
        # Up to Python 3.11 with its type and traceback.
        one = one[1] if isinstance(one, tuple) else one
        for _ in range(HANDLED_MAX):
            if one is None or any(one is other for other in found):
                break
            found.append(one)
            # Not the exception's own word for it.
            one = BaseException.__context__.__get__(one)
    return found


def places(device: int) -> list[Any]:
    """Who holds live blocks by line of the program, while history is recorded; the most first."""
    import torch
    from ._holders import NO_STACK, holders
    from ._version import numbers
    if not torch._C._cuda_isHistoryEnabled():
        return []
    options = {"include_traces": False} if numbers(torch.__version__) >= (2, 11) else {}
    segments = torch.cuda.memory_snapshot(**options)
    found = holders([one for one in segments if one["device"] == device])
    return [one for one in found if one.name != NO_STACK]


class _Process(ctypes.Structure):
    """`nvmlProcessInfo_t`, versions 2 and 3."""

    _fields_ = [("number", ctypes.c_uint), ("used", ctypes.c_ulonglong),
                ("instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


def processes_of(device: int) -> dict[int, int]:
    """Bytes by process, as NVIDIA's management library has them; empty where it does not say."""
    import torch
    index_of = getattr(torch.cuda, "_get_nvml_device_index", None)
    if index_of is None or not sys.platform.startswith("linux"):
        return {}
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        list_of = nvml.nvmlDeviceGetComputeRunningProcesses_v3
    except (OSError, AttributeError):
        return {}
    handle, count = ctypes.c_void_p(), ctypes.c_uint(256)
    room = (_Process * count.value)()
    answers = [nvml.nvmlInit_v2()]
    answers.append(nvml.nvmlDeviceGetHandleByIndex_v2(index_of(device), ctypes.byref(handle)))
    answers.append(list_of(handle, ctypes.byref(count), room))
    nvml.nvmlShutdown()
    # Of a process in a container that hides it the size is unknown: all bits are set.
    unknown = 2**64 - 1
    return {} if any(answers) else {
        one.number: one.used for one in room[:count.value] if one.used != unknown}
