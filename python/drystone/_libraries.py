"""Other libraries of the process, such as NCCL and cuBLAS, that ask the driver for memory: whether
they get what Drystone holds unused.

Invariant: nothing of theirs is changed. They get it where Drystone's library stands before the
driver from the start of the process; in one that runs already they have found the driver, or would
have to have their tables of functions overwritten.
"""

from __future__ import annotations

import logging
import os
import re

from . import _library

# Those of NVIDIA's that take memory of the device by themselves.
_NAME = re.compile(
    r"/(lib(?:cudart|cublas|cublasLt|cudnn|cufft|cusolver|cusparse|curand|nccl|nvshmem_host)\.so)")
# What covers them: to be said wherever they are not.
_WAY_OUT = "start the program by python -m drystone or drystone-run"


def are_covered() -> bool:
    """Whether they get what is unused in this process."""
    return _library.preloaded() is not None


def loaded() -> list[str]:
    """Those of this process, by name."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return sorted(set(_NAME.findall(maps.read())))
    except OSError:
        return []


def log() -> None:
    """Says once which libraries get what is unused, and which do not."""
    names = ", ".join(loaded()) or "none yet"
    if are_covered():
        text = "libraries get what drystone holds unused, also those loaded later: %s"
    else:
        text = f"libraries do not get what drystone holds unused ({_WAY_OUT}): %s"
    logging.getLogger("drystone").info(text, names)


def told() -> str | None:
    """The same for `doctor`; None if no way of starting a program covers them."""
    names = ", ".join(name.removeprefix("lib").removesuffix(".so") for name in loaded())
    if are_covered():
        return f"{names}: get what is unused, by {_library.preloaded()}"
    if _library.to_preload() is None:
        return None
    return f"{names}: get what is unused by python -m drystone and drystone-run, not by enable()"


def why_not() -> str:
    """Why no way of starting a program covers them."""
    folder = os.path.dirname(os.path.abspath(_library.own()))
    return f"{folder} has no libdrystone_preload.so, or its name has a space or a colon"
