"""Builds the wheel: the package with `libdrystone.so` in it, for any Python 3 on this platform.

An in-tree build backend (PEP 517) that needs nothing but Python: `pip wheel python/`, or
`cargo xtask wheel`. The library is the file that DRYSTONE_LIBRARY names, else it is built by cargo.
Invariant: equal contents give an equal file, byte for byte.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sysconfig
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADER = HERE.parent / "crates/capi/include/drystone.h"
# Python, and the C++ that is compiled where the package is used.
SOURCES = ("*.py", "*.h", "*.cpp")
NAME, VERSION = "drystone", "0.1.0"
INFO = f"{NAME}-{VERSION}.dist-info"
METADATA = f"""\
Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: Drystone, a CUDA caching allocator, as PyTorch's allocator
License: MIT OR Apache-2.0
Requires-Python: >=3.10
"""
SCRIPTS = "[console_scripts]\ndrystone-run = drystone.__main__:run\n"
# The first day that a ZIP file can tell.
DATE = (1980, 1, 1, 0, 0, 0)


def get_requires_for_build_wheel(config_settings: object = None) -> list[str]:
    """Nothing."""
    return []


def build_wheel(
    wheel_directory: str, config_settings: object = None, metadata_directory: object = None,
) -> str:
    """Writes the wheel into a folder and returns its name."""
    tag = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")
    contents = {
        **{str(path.relative_to(HERE)): path.read_bytes()
           for pattern in SOURCES for path in sorted((HERE / NAME).rglob(pattern))},
        f"{NAME}/_cpp/drystone.h": HEADER.read_bytes(),
        f"{NAME}/libdrystone.so": library().read_bytes(),
        f"{INFO}/METADATA": METADATA.encode(),
        f"{INFO}/WHEEL":
            f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{INFO}/entry_points.txt": SCRIPTS.encode(),
    }
    record = f"{INFO}/RECORD"
    lines = [f"{name},{digest(data)},{len(data)}\n" for name, data in contents.items()]
    contents[record] = "".join([*lines, f"{record},,\n"]).encode()
    file = f"{NAME}-{VERSION}-{tag}.whl"
    with zipfile.ZipFile(Path(wheel_directory) / file, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in contents.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return file


def library() -> Path:
    """The library to ship."""
    named = os.environ.get("DRYSTONE_LIBRARY")
    if named:
        return Path(named)
    command = ["cargo", "xtask", "capi"]
    out = subprocess.run(command, cwd=HERE.parent, check=True, stdout=subprocess.PIPE, text=True)
    return Path(out.stdout.splitlines()[-1]) / "lib/libdrystone.so"


def digest(data: bytes) -> str:
    """As a wheel's record has it."""
    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + found.rstrip(b"=").decode()
