"""`libdrystone.so` as Python calls it. Imports no PyTorch.

Invariant: the library is loaded once, and stays.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import pickle
from pathlib import Path
from typing import Any

from ._errors import DrystoneError

ABI_VERSION = 1
# What the preloaded library does: where Drystone is PyTorch's allocator, NCCL and its kind get what
# it holds unused.
PRELOAD = "DRYSTONE_PRELOAD"
GIVES_BACK = "gives-back"
_BUFFER_TOO_SMALL = 22


class _FoundAt(ctypes.Structure):
    """What `dladdr` knows of an address (`Dl_info`)."""

    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("symbol", ctypes.c_char_p), ("address", ctypes.c_void_p)]


class _Gauge(ctypes.Structure):
    """`struct drystone_gauge`."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "total")]


class PoolStreamStats(ctypes.Structure):
    """`struct drystone_pool_stream_stats`."""

    _fields_ = [
        ("stream", ctypes.c_size_t), ("id0", ctypes.c_uint64), ("id1", ctypes.c_uint64),
        ("active_bytes", _Gauge), ("allocated_bytes", ctypes.c_uint64),
        ("free_bytes", ctypes.c_uint64), ("largest_free_bytes", ctypes.c_uint64),
        ("is_small", ctypes.c_uint8), ("is_released", ctypes.c_uint8),
        ("is_growing", ctypes.c_uint8)]


@functools.cache
def preloaded() -> str | None:
    """Where ``libdrystone_preload.so`` is, if it was: one process has one allocator. Asked before
    the library is loaded, and not again."""
    everything = ctypes.CDLL(None)
    if not hasattr(everything, "drystone_abi_version"):
        return None
    found = _FoundAt()
    where = ctypes.cast(everything.drystone_abi_version, ctypes.c_void_p)
    known = everything.dladdr(where, ctypes.byref(found))
    file = os.fsdecode(found.file) if known and found.file else ""
    return file if Path(file).name.startswith("libdrystone_preload") else None


def serves_by_preload() -> bool:
    """Whether the preloaded library serves by itself, and does not only give back for others."""
    return preloaded() is not None and os.environ.get(PRELOAD) != GIVES_BACK


def path() -> str:
    """Where the library is that serves this process: what covers other libraries, if it is there."""
    return preloaded() or covering() or own()


def own() -> str:
    """Where ``libdrystone.so`` is."""
    return os.environ.get("DRYSTONE_LIBRARY") or str(Path(__file__).with_name("libdrystone.so"))


def covering() -> str | None:
    """Where the library is that stands before the driver, if it is there."""
    found = os.path.join(os.path.dirname(os.path.abspath(own())), "libdrystone_preload.so")
    return found if os.path.exists(found) else None


def to_preload() -> str | None:
    """The same, if it can be named."""
    found = covering()
    # The loader's list ends a name at each of these.
    return None if found is None or any(mark in found for mark in ": ") else found


@functools.cache
def library() -> ctypes.CDLL:
    """The library, loaded at the first call."""
    try:
        found = _loaded(path())
    except OSError as error:
        raise DrystoneError(
            f"cannot load libdrystone.so: {error}; install the drystone wheel for this platform, "
            "or name the file in DRYSTONE_LIBRARY") from None
    try:
        version = found.drystone_abi_version()
        if version == ABI_VERSION:
            found.drystone_last_error_message.restype = ctypes.c_char_p
            found.drystone_torch_refusals.restype = ctypes.c_uint64
            found.drystone_devices_in_use.restype = ctypes.c_uint64
            return found
        reason = f"has interface {version}, this package needs {ABI_VERSION}"
    except AttributeError as error:
        reason = f"is another library, or of another release ({error})"
    raise DrystoneError(f"{path()} {reason}: install both from one release")


def _loaded(file: str) -> ctypes.CDLL:
    """A library of ours; what is compiled for PyTorch finds one that covers others, too."""
    if file != covering() or file == preloaded():
        return ctypes.CDLL(file)
    said = os.environ.get(PRELOAD)
    os.environ[PRELOAD] = GIVES_BACK
    try:
        return ctypes.CDLL(file, mode=os.RTLD_NOW | os.RTLD_GLOBAL)
    finally:
        if said is None:
            del os.environ[PRELOAD]
        else:
            os.environ[PRELOAD] = said


def address(name: str) -> int:
    """Where a function is, for PyTorch to call."""
    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0


def check(status: int) -> None:
    """Raises what went wrong, if something did."""
    if status != 0:
        raise DrystoneError(library().drystone_last_error_message().decode(errors="replace"))


def configure(options: str) -> None:
    """Settles the options of all devices."""
    # Options with a NUL would end there.
    if "\0" in options:
        raise DrystoneError("the options contain a NUL")
    check(library().drystone_configure(-1, options.encode()))


def bind_to_torch() -> None:
    """Finds how to raise PyTorch's exceptions."""
    check(library().drystone_torch_bind())


def stats(device: int) -> dict[str, Any]:
    """The statistics of a device."""
    size = 4096
    while True:
        room, needed = ctypes.create_string_buffer(size), ctypes.c_size_t()
        status = library().drystone_stats_json(
            device, room, ctypes.c_size_t(size), ctypes.byref(needed))
        if status != _BUFFER_TOO_SMALL:
            check(status)
            return json.loads(room.value)
        size = needed.value


def pool_stream_stats(device: int) -> list[PoolStreamStats]:
    """What each pool, size class and stream of a device has."""
    count = ctypes.c_size_t(64)
    while True:
        room = (PoolStreamStats * count.value)()
        status = library().drystone_get_pool_stream_stats(device, room, ctypes.byref(count))
        if status != _BUFFER_TOO_SMALL:
            check(status)
            return room[:count.value]


def devices() -> list[int]:
    """The devices in use. To ask of another one opens it."""
    bits = library().drystone_devices_in_use()
    return [device for device in range(64) if bits >> device & 1]


def largest_free(device: int) -> int:
    """The bytes of a device's largest free block."""
    found = ctypes.c_size_t()
    check(library().drystone_largest_free(device, ctypes.byref(found)))
    return found.value


def refusals(device: int) -> int:
    """How often PyTorch was told that a device has no memory left."""
    return library().drystone_torch_refusals(device)


def reset_peaks(device: int) -> None:
    """Peaks become what is held now."""
    check(library().drystone_reset_peaks(device))


def snapshot() -> dict[str, Any]:
    """What all devices in use hold, as PyTorch describes it."""
    with os.fdopen(os.memfd_create("drystone-snapshot"), "rb") as file:
        name = f"/proc/self/fd/{file.fileno()}"
        check(library().drystone_snapshot(name.encode()))
        return pickle.load(file)
