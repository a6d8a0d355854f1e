"""Drystone as PyTorch's own kind of allocator: compiled once for each PyTorch, and installed.

PyTorch's allocators are C++ objects whose layout changes with almost every version, so the source
is part of this package and is compiled where it is used. What was compiled is kept in a folder of
the user's, under a name that says all it depends on. Invariant: a file under such a name is whole.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType

from . import _library
from ._errors import DrystoneError
from ._version import numbers

# The first PyTorch whose headers are C++20. What else differs is in `_cpp/version.h`.
CXX20 = (2, 14)
SOURCE = Path(__file__).with_name("_cpp")
MAIN = "drystone_torch.cpp"
OTHERWISE = "or leave native=True out: without it nothing is compiled"


def install(torch: ModuleType) -> None:
    """Makes Drystone PyTorch's allocator, at both places where PyTorch keeps it."""
    native = load(library(torch))
    native.drystone_native_install.restype = ctypes.c_char_p
    reason = native.drystone_native_install()
    if reason is not None:
        raise DrystoneError(
            f"PyTorch keeps the allocator it has ({reason.decode()}): call drystone.enable() right "
            "after importing torch")


def library(torch: ModuleType) -> Path:
    """The compiled library for this PyTorch, compiled now if it is not there."""
    include = Path(torch.__file__).with_name("include")
    header = _header()
    command = [*compiler(), *flags(torch.__version__, torch._C._GLIBCXX_USE_CXX11_ABI)]
    compiled = folder() / f"drystone-torch-{torch.__version__}-{_digest(header, command)}.so"
    if compiled.exists():
        return compiled
    try:
        compiled.parent.mkdir(parents=True, exist_ok=True)
        with open(compiled.with_suffix(".lock"), "w") as lock:
            # Of many processes that start at once, one compiles.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not compiled.exists():
                _compile(compiled, [*command, f"-I{header.parent}", f"-isystem{include}"],
                         Path(torch.__file__).with_name("lib"))
    except OSError as error:
        raise DrystoneError(
            f"what native=True compiles cannot be kept in {compiled.parent} ({error}): name "
            f"another folder in DRYSTONE_CACHE, {OTHERWISE}") from error
    return compiled


def load(path: Path) -> ctypes.CDLL:
    """Loads what was compiled, which finds PyTorch and Drystone loaded already."""
    try:
        return ctypes.CDLL(str(path), mode=os.RTLD_NOW)
    except OSError as error:
        raise DrystoneError(
            f"what was compiled for this PyTorch cannot be loaded ({error}): remove {path} to "
            f"have it compiled anew, {OTHERWISE}") from error


def folder() -> Path:
    """Where compiled libraries are kept."""
    named = os.environ.get("DRYSTONE_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drystone"


def _header() -> Path:
    """Drystone's C header: in this package, or beside the library that was built."""
    places = [SOURCE / "drystone.h", Path(_library.path()).parent / "../include/drystone.h"]
    for place in places:
        if place.exists():
            return place.resolve()
    raise DrystoneError(
        f"drystone.h is neither {places[0]} nor {places[1]}: install the drystone wheel, or build "
        "the library by cargo xtask capi")


def flags(version: str, is_new_abi: bool) -> list[str]:
    """What the compiler is to be told for a version of PyTorch. The last one names a folder."""
    standard = "c++20" if numbers(version) >= CXX20 else "c++17"
    return [
        f"-std={standard}", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(is_new_abi)}", f"-I{SOURCE / 'cuda'}"]


def _digest(header: Path, command: list[str]) -> str:
    """Of all that the compiled library depends on, beside PyTorch's version."""
    digest = hashlib.sha256("\0".join(command[:-1]).encode())
    for path in [header, *sorted(SOURCE.rglob("*.*"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def compiler() -> list[str]:
    """The C++ compiler's command."""
    named = os.environ.get("CXX", "").split()
    return named or [next(filter(shutil.which, ("c++", "g++", "clang++")), "c++")]


def _compile(to: Path, command: list[str], libraries: Path) -> None:
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        made = Path(scratch) / to.name
        link = ["-o", str(made), _library.path(), f"-L{libraries}", "-lc10_cuda", "-lc10"]
        try:
            done = subprocess.run(
                [*command, str(SOURCE / MAIN), *link, "-Wl,-z,now"], capture_output=True, text=True)
        except OSError as error:
            raise DrystoneError(
                f"native=True needs a C++ compiler, and there is none ({error}): install one, such "
                f"as g++, or name it in CXX, {OTHERWISE}") from error
        if done.returncode != 0:
            raise DrystoneError(
                f"the C++ compiler cannot compile drystone for this PyTorch: use another by CXX, "
                f"{OTHERWISE}. It says:\n{_excerpt(done.stderr)}")
        os.replace(made, to)


def _excerpt(text: str) -> str:
    """The first errors, which are what the others come from."""
    lines = text.splitlines()
    errors = [line for line in lines if "error" in line]
    return "\n".join((errors or lines)[:8])
