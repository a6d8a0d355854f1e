"""PyTorch's wheels on the package index: which versions there are, and parts of one.

Lives here: all that asks the network. Invariant: of a wheel of half a gigabyte a few megabytes are
fetched, by range requests; where they are, pip says, as it is set up on this machine.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path

# Tags of PyTorch's wheels, old and new.
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
# Every version had wheels for it.
PYTHON = "3.12"
READ_BYTES = 1 << 20


def versions(oldest: tuple[int, int]) -> list[str]:
    """Every release that the index has, from the oldest minor one on, oldest first."""
    told = _pip("index", "versions", "torch")
    [line] = re.findall(r"^Available versions: (.*)$", told, re.MULTILINE)
    found = [tuple(map(int, version.split("."))) for version in line.split(", ")]
    return [".".join(map(str, version)) for version in sorted(found) if version[:2] >= oldest]


def fetch(version: str, to: Path, is_wanted: Callable[[str], bool]) -> None:
    """The wanted files of a version's wheel, whole or not at all, if they are not there."""
    if to.exists():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        wheel = _Remote(_address(version))
        with zipfile.ZipFile(io.BufferedReader(wheel, READ_BYTES)) as file:
            wanted = [entry for entry in file.infolist() if is_wanted(entry.filename)]
            # In the order of the file, so that it is read in few requests.
            for entry in sorted(wanted, key=lambda entry: entry.header_offset):
                file.extract(entry, Path(scratch) / "wheel")
        (Path(scratch) / "wheel").rename(to)
    print(f"PyTorch {version}: {len(wanted)} files, {wheel.fetched >> 20} MiB of "
          f"{wheel.bytes >> 20} MiB fetched", flush=True)


def _address(version: str) -> str:
    with tempfile.TemporaryDirectory() as unused:
        report = _pip(
            "install", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary", ":all:",
            "--report", "-", "--target", unused, "--python-version", PYTHON,
            *(f"--platform={platform}" for platform in PLATFORMS), f"torch=={version}")
    return json.loads(report)["install"][0]["download_info"]["url"]


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, "--quiet"]
    if arguments[0] == "index":
        command.pop()  # What is asked for would not be told.
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class _Remote(io.RawIOBase):
    """A file at an address, read where it is asked for."""

    def __init__(self, address: str) -> None:
        self._address, self._at, self.fetched = address, 0, 0
        with self._answer(0, 1) as answer:
            if answer.status != 206:
                raise OSError(f"the package index sends no parts of files: {answer.status}")
            self.bytes = int(answer.headers["Content-Range"].split("/")[1])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = (0, self._at, self.bytes)[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:
        wanted = min(len(buffer), self.bytes - self._at)
        if wanted <= 0:
            return 0
        with self._answer(self._at, wanted) as answer:
            part = answer.read()
        buffer[:len(part)] = part
        self._at += len(part)
        self.fetched += len(part)
        return len(part)

    def _answer(self, start: int, count: int):
        ask = urllib.request.Request(
            self._address, headers={"Range": f"bytes={start}-{start + count - 1}"})
        return urllib.request.urlopen(ask, timeout=60)
