"""Compiles the C++ source of the package against the headers of other PyTorches.

    python3 xtask/torch_headers.py FOLDER DRYSTONE_H_FOLDER VERSION...

CUDA's side of the headers is in the wheels for macOS as well, which are a tenth of those for Linux.
They are fetched one at a time, and of each a few megabytes are kept in FOLDER.
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))

from drystone import _native  # noqa: E402

KEPT = ("torch/include/c10/", "torch/include/torch/headeronly/",
        "torch/include/torch/csrc/api/include/torch/version.h")
# What the wheels for Linux have beside them.
MACROS = "torch/include/c10/cuda/impl/cuda_cmake_macros.h"


def fetch(version: str, to: Path) -> None:
    """The headers of a version, if they are not there."""
    if to.exists():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--only-binary", ":all:", "--platform", "macosx_14_0_arm64",
             "--python-version", "3.11", "--dest", scratch, f"torch=={version}"], check=True)
        [wheel] = Path(scratch).glob("*.whl")
        headers = Path(scratch) / "headers"
        with zipfile.ZipFile(wheel) as file:
            file.extractall(headers, [name for name in file.namelist() if name.startswith(KEPT)])
        macros = headers / MACROS
        macros.parent.mkdir(parents=True, exist_ok=True)
        macros.write_text("#define C10_CUDA_BUILD_SHARED_LIBS\n")
        headers.rename(to)


def compiles(version: str, headers: Path, include: Path) -> bool:
    """Whether the source does, with what the compiler says if it does not."""
    done = subprocess.run(
        [*_native.compiler(), *_native.flags(version, is_new_abi=True), f"-I{include}",
         f"-isystem{headers / 'torch/include'}", "-fsyntax-only",
         str(_native.SOURCE / _native.MAIN)], capture_output=True, text=True)
    print(f"PyTorch {version}: {'compiles' if done.returncode == 0 else done.stderr}", flush=True)
    return done.returncode == 0


def main(folder: str, include: str, *versions: str) -> int:
    results = []
    for version in versions:
        headers = Path(folder) / version
        try:
            fetch(version, headers)
        except subprocess.CalledProcessError:
            # Without a network there is nothing to compile against. Pip has said why.
            print(f"PyTorch {version}: skipped, its wheel cannot be fetched", flush=True)
            continue
        results.append(compiles(version, headers, Path(include)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
