"""Where the simulated libraries are, and how a program comes to use them in place of real ones.

Libraries are told apart by their names: one that is loaded already serves whoever asks for its
name later, whatever path that one would have taken.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ._errors import SimError

# Folders to take the libraries from, in place of those of the package.
LIBRARIES = "DRYSTONE_SIM_LIBRARIES"
PACKAGED = Path(__file__).resolve().parent / "lib"
COMMAND = "drystone"
# The folder of NVIDIA's cuDNN, which the stub of it asks what engines work in, without a device.
CUDNN = "DRYSTONE_CUDNN"
# Where its packages lie beside others, and what of it is asked.
CUDNN_PACKAGED = Path("nvidia/cudnn/lib/libcudnn_graph.so.9")
# These need the driver, so they come after it.
FIRST = ("libcuda.so.1",)


def folders() -> list[Path]:
    """Where the libraries are."""
    given = os.environ.get(LIBRARIES)
    found = [Path(part).resolve() for part in given.split(os.pathsep)] if given else [PACKAGED]
    if not any((folder / FIRST[0]).exists() for folder in found):
        raise SimError(
            f"the simulated driver is not in {', '.join(map(str, found))}: install a wheel of "
            f"drystone-sim, or name the folders of `cargo xtask simcuda` and `cargo xtask stubs` "
            f"in {LIBRARIES}")
    return found


def libraries() -> list[Path]:
    """All of them, each by the name that programs ask for."""
    found: dict[str, Path] = {}
    for folder in folders():
        for file in sorted(folder.glob("lib*.so.*[0-9]")):
            found.setdefault(file.name, file)
    first = [found.pop(name) for name in FIRST]
    return [*first, *found.values()]


def cudnn() -> dict[str, str]:
    """Where NVIDIA's cuDNN is, for the environment; nothing if it is not installed."""
    if CUDNN in os.environ:
        return {CUDNN: os.environ[CUDNN]}
    found = (Path(path, CUDNN_PACKAGED) for path in sys.path)
    return next(({CUDNN: str(file.resolve().parent)} for file in found if file.exists()), {})


def of_torch() -> list[Path]:
    """All of them, where those are there that PyTorch asks for."""
    files = libraries()
    if not any(file.name.startswith("libcublas.so") for file in files):
        raise SimError(f"there are no stubs of NVIDIA's libraries in {files[0].parent}: install "
                       "PyTorch, and then this again from its source (pip install "
                       "--force-reinstall ./python-sim), or name the torch/lib of a PyTorch in "
                       "DRYSTONE_SIM_TORCH meanwhile")
    return files


def load() -> None:
    """Loads them into this process, before PyTorch asks for any."""
    os.environ.update(cudnn())
    for file in of_torch():
        try:
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise SimError(f"cannot load {file}: {error}") from error


def counted() -> dict[str, Any]:
    """What the simulated driver counted in this process."""
    tell = ctypes.CDLL(FIRST[0]).simcuda_stats_json
    tell.restype = ctypes.c_uint64
    room = tell(None, ctypes.c_uint64(0)) + 4096
    text = ctypes.create_string_buffer(room)
    tell(text, ctypes.c_uint64(room))
    return json.loads(text.value.decode())


def environment(given: Mapping[str, str], device: str) -> dict[str, str]:
    """An environment whose programs find the simulated libraries where they look for real ones."""
    paths = [*map(str, folders()), *_parts(given, "LD_LIBRARY_PATH")]
    return {
        **given, **cudnn(), "SIMCUDA_CONF": device, "LD_LIBRARY_PATH": os.pathsep.join(paths),
        # Triton links what it compiles with the driver that it finds here.
        "TRITON_LIBCUDA_PATH": paths[0],
    }


def preloaded(given: Mapping[str, str], device: str) -> dict[str, str]:
    """The same for programs of any kind, also those that look for NVIDIA's beside themselves."""
    paths = [*map(str, libraries()), *_parts(given, "LD_PRELOAD")]
    return {**environment(given, device), "LD_PRELOAD": os.pathsep.join(paths)}


def _parts(given: Mapping[str, str], name: str) -> Iterator[str]:
    return (part for part in given.get(name, "").split(os.pathsep) if part)


def command() -> str:
    """The `drystone` command that replays recordings."""
    packaged = PACKAGED.parent / "bin" / COMMAND
    found = str(packaged) if packaged.exists() else shutil.which(COMMAND)
    if found is None:
        raise SimError("the drystone command is not on PATH: install a wheel of drystone-sim, or "
                       "`cargo install --path crates/tools/cli`")
    return found
