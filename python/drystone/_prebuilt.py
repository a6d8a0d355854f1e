"""What the wheel brings compiled, and which of it is for this PyTorch.

Lives here: the index of those files, and the digest by which they are chosen. Invariant: a file is
taken only where PyTorch's headers are those that it was compiled with, letter by letter, so that
PyTorch's classes are those that it knows, whoever has built this PyTorch.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from ._errors import DrystoneError

FOLDER = Path(__file__).with_name("_compiled")
INDEX = "index.json"
# What every file is called, beside PyTorch's version and C++ ABI.
NAME = "drystone-torch-{version}-abi{abi}.so"


def find(version: str, include: Path, is_new_abi: bool, source: str) -> Path:
    """The file for a PyTorch with these headers, for what `_cpp` now is; else why there is none."""
    try:
        index = json.loads((FOLDER / INDEX).read_text())
    except OSError:
        raise DrystoneError("nothing is compiled in this build of drystone") from None
    except ValueError as error:
        raise DrystoneError(f"{FOLDER / INDEX} cannot be read ({error})") from None
    released = re.match(r"\d+\.\d+\.\d+", version)
    release = index["releases"].get(released.group() if released else "")
    file = release and release["files"].get(str(int(is_new_abi)))
    if file is None or index["machine"] != platform.machine() or index["source"] != source:
        raise DrystoneError(
            f"this drystone brings nothing compiled for PyTorch {version}, C++ ABI "
            f"{int(is_new_abi)}, {platform.machine()}")
    try:
        digest = digest_of(include, release["headers"])
    except OSError as error:
        raise DrystoneError(f"PyTorch's headers are not all there ({error})") from None
    if digest != release["digest"]:
        raise DrystoneError(f"PyTorch {version} has other headers than the release of that number")
    return FOLDER / file


def digest_of(include: Path, headers: Iterable[str]) -> str:
    """Of these headers' names and text."""
    digest = hashlib.sha256()
    for name in headers:
        text = (include / name).read_bytes()
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()
