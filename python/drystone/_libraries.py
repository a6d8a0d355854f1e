"""Other libraries of the process, such as NCCL and cuBLAS, that ask the driver for memory: whether
they get what Drystone holds unused.

Invariant: what they have found by a look-up stays. So those get it that look for the driver's
functions once Drystone's library stands before these: from the start of the process, or from
`cover` on, which changes what the loader has bound.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import sys

from . import _library

# Those of NVIDIA's that take memory of the device by themselves.
_NAME = re.compile(
    r"/(lib(?:cudart|cublas|cublasLt|cudnn|cufft|cusolver|cusparse|curand|nccl|nvshmem_host)\.so)")
# What covers those that were too early: to be said wherever there are any.
_WAY_OUT = "start the program by python -m drystone or drystone-run"
# Functions that whoever takes memory has looked up.
_TAKING = ("cuMemAlloc_v2", "cuMemCreate", "cuModuleLoadData", "cuLaunchKernel")

_is_covering = False
_too_early: list[str] = []
# Somebody may have made streams that nobody has seen.
_was_in_use = False


def cover() -> None:
    """Has the libraries of this process, and those that come, get what is unused."""
    global _is_covering, _too_early, _was_in_use
    if _library.preloaded() is not None or not hasattr(
            _library.library(), "drystone_cover_libraries"):
        return
    driver = _driver()
    _was_in_use = driver is not None and driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0
    taking = _taking(driver)
    _library.library().drystone_cover_libraries()
    _is_covering, _too_early = True, _holding(taking)


def _driver() -> ctypes.CDLL | None:
    """The driver, if anybody has loaded it."""
    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None


def _taking(driver: ctypes.CDLL | None) -> list[bytes]:
    """Where the driver's functions are, as memory has it; none where nobody has loaded it."""
    found = [ctypes.cast(getattr(driver, name), ctypes.c_void_p).value
             for name in _TAKING if hasattr(driver, name)]
    return [(address or 0).to_bytes(ctypes.sizeof(ctypes.c_void_p), sys.byteorder)
            for address in found]


def _holding(addresses: list[bytes]) -> list[str]:
    """Libraries whose own variables have one of these."""
    found: set[str] = set()
    if not addresses:
        return []
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            lines = maps.read().splitlines()
        name, end = None, ""
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            for line in lines:
                place, access, *rest = line.split(maxsplit=5)
                start, last = place.split("-")
                if len(rest) > 3:
                    match = _NAME.search(rest[3])
                    name = match and match[1]
                elif start != end:
                    name = None
                end = last
                if name and access.startswith("rw"):
                    memory.seek(int(start, 16))
                    has = memory.read(int(last, 16) - int(start, 16))
                    if any(address in has for address in addresses):
                        found.add(name)
    except OSError:
        pass
    return sorted(found)


def are_covered() -> bool:
    """Whether they get what is unused in this process."""
    return _is_covering or _library.preloaded() is not None


def sees_all() -> bool:
    """Whether Drystone's library sees every stream of this process, and every copy: live memory
    that moves must meet none."""
    return _library.preloaded() is not None or (
        _is_covering and not _too_early and not _was_in_use)


def loaded() -> list[str]:
    """Those of this process, by name."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return sorted(set(_NAME.findall(maps.read())))
    except OSError:
        return []


def log() -> None:
    """Says once which libraries get what is unused, and which do not."""
    names = ", ".join(name for name in loaded() if name not in _too_early) or "none yet"
    if not are_covered():
        text = f"libraries do not get what drystone holds unused ({_WAY_OUT}): %s"
    elif _too_early:
        text = ("libraries get what drystone holds unused, also those loaded later: %s; not "
                f"{', '.join(_too_early)}, used before drystone.enable() ({_WAY_OUT})")
    else:
        text = "libraries get what drystone holds unused, also those loaded later: %s"
    logging.getLogger("drystone").info(text, names)


def told() -> str | None:
    """The same for `doctor`; None if nothing covers them."""
    if not are_covered():
        return None
    def short(names: list[str]) -> str:
        return ", ".join(name.removeprefix("lib").removesuffix(".so") for name in names)
    covered = short([name for name in loaded() if name not in _too_early])
    text = f"{covered}: get what is unused, by {_library.path()}"
    return f"{text}; {short(_too_early)}: not, used before enable()" if _too_early else text


def why_not() -> str:
    """Why nothing covers them."""
    folder = os.path.dirname(os.path.abspath(_library.own()))
    return f"{folder} has no libdrystone_preload.so"
