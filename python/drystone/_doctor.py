"""`python -m drystone doctor`: what Drystone finds here, what is off, and why.

Invariant: whatever fails is a line of the answer, and never an exception.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import io
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from typing import Any

from . import __version__, _command, _libraries, _library
from ._errors import DrystoneError
from ._text import printable

Facts = dict[str, Any]

# Those that change what Drystone does, or PyTorch's allocator.
VARIABLES = ("CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF",
             "PYTORCH_NO_CUDA_MEMORY_CACHING")


def main(arguments: list[str]) -> int:
    """Prints what is found, as lines or with `--json`. 0 if Drystone serves PyTorch here."""
    parser = argparse.ArgumentParser(
        "python -m drystone doctor", description="Tells what Drystone finds here, and what is off; "
        "ends with 0 where it serves PyTorch, else with 1.")
    parser.add_argument("--json", action="store_true", help="JSON in place of lines")
    given = parser.parse_args(arguments)
    facts = examine()
    if given.json:
        print(json.dumps(facts, indent=2))
    else:
        print("\n".join(map(printable, lines(facts))))
    return 0 if facts["route"] else 1


def examine() -> Facts:
    """Everything that is worth knowing of this machine, with what is off."""
    off: list[dict[str, str]] = []
    facts: Facts = {
        "drystone": __version__,
        "package": os.path.dirname(os.path.abspath(__file__)),
        "library": _try(off, "the library", _library_path),
        "python": f"{platform.python_version()}, {sys.executable}",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}, "
                  f"{' '.join(platform.libc_ver())}",
        "pytorch": None, "cuda": None, "driver": None, "devices": [], "route": None,
        "virtual_memory": None, "libraries": None,
        "command": _command.path(),
        "environment": {key: text for key, text in sorted(os.environ.items())
                        if key in VARIABLES or key.startswith("DRYSTONE_")},
        "off": off,
    }
    if facts["command"] is None:
        off.append({"what": "what PyTorch's allocators would hold, in reports",
                    "why": "the drystone command is neither in the package nor on PATH"})
    _try(off, "Drystone under PyTorch", lambda: _enable(facts, off))
    return facts


def _library_path() -> str:
    _library.library()
    return _library.path()


def _enable(facts: Facts, off: list[dict[str, str]]) -> None:
    """Enables it, and asks for a little memory."""
    try:
        import torch
    except ImportError as error:
        raise DrystoneError(f"PyTorch cannot be imported: {error}") from error
    facts["pytorch"], facts["cuda"] = torch.__version__, torch.version.cuda
    from . import _available
    from . import _enable as enabling
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        # PyTorch's import has enabled it where the environment says so.
        if not enabling.is_enabled:
            enabling.enable({})
    for line in said.getvalue().splitlines():
        text = line.removeprefix("drystone: ")
        if text.startswith("compiling"):
            # It is done by now.
            continue
        off.append({"what": text.split(":")[0], "why": text.partition(":")[2].strip()})
    facts["driver"] = _driver()
    for ordinal in range(torch.cuda.device_count()):
        kept = torch.empty(1 << 21, dtype=torch.uint8, device=f"cuda:{ordinal}")
        free, total = torch.cuda.mem_get_info(ordinal)
        stats = _library.stats(ordinal)
        facts["devices"].append({
            "ordinal": ordinal, "name": torch.cuda.get_device_name(ordinal),
            "bytes": total, "free_bytes": free,
            "neighbours": [*_available.host(stats), *_available.others(stats)]})
        del kept
        if ordinal == 0:
            # While no other device is in use, which memory of this one is opened to.
            _check_moves(off)
    facts["libraries"] = _libraries.told()
    if facts["libraries"] is None:
        off.append({"what": "unused memory for NCCL, cuBLAS and other libraries",
                    "why": _libraries.why_not()})
    is_plug_in = torch.cuda.get_allocator_backend() == "pluggable"
    facts["route"] = "plug-in" if is_plug_in else "compiled"
    segments = torch.cuda.memory_snapshot()
    facts["virtual_memory"] = any(one["is_expandable"] for one in segments)
    if not facts["virtual_memory"]:
        off.append({"what": "remapping", "why": "memory comes in plain allocations: the backend "
                    "asked for, or a device without virtual memory"})


def _check_moves(off: list[dict[str, str]]) -> None:
    """Whether live memory of the first device moves by itself."""
    if _library.library().drystone_check_moves(0) != 0:
        why = _library.library().drystone_last_error_message().decode(errors="replace")
        off.append({"what": "live memory that moves", "why": why.partition(": ")[2] or why})


def _driver() -> str | None:
    """The newest CUDA that the driver serves."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return f"CUDA {version.value // 1000}.{version.value % 1000 // 10}"


def _try(off: list[dict[str, str]], what: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        off.append({"what": what, "why": " ".join(str(error).split()) or type(error).__name__})
        return None


def lines(facts: Facts) -> Iterable[str]:
    """The same for people."""
    from ._figures import text_of_bytes
    shown = {
        "drystone": facts["drystone"], "package": facts["package"], "library": facts["library"],
        "python": facts["python"], "system": facts["system"],
        "pytorch": facts["pytorch"] and f"{facts['pytorch']}, CUDA {facts['cuda']}",
        "driver": facts["driver"], "route": facts["route"],
        "memory": {True: "virtual, remapped", False: "plain allocations", None: None}[
            facts["virtual_memory"]],
        "libraries": facts["libraries"],
        "command": facts["command"]}
    for name, value in shown.items():
        yield f"{name + ':':10} {value or '-'}"
    for one in facts["devices"]:
        free, total = text_of_bytes(one["free_bytes"]), text_of_bytes(one["bytes"])
        yield f"GPU {one['ordinal']}:     {one['name']}, {free} free of {total}"
        for text in one["neighbours"]:
            yield f"           {text}"
    for key, text in facts["environment"].items():
        yield f"{key}={text}"
    for one in facts["off"]:
        yield f"off:       {one['what']}: {one['why']}"
    if not facts["off"]:
        yield "nothing is off"
