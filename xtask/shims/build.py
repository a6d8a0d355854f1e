"""Compiles the C++ of the Python package for releases of PyTorch, from their headers alone.

    python3 xtask/shims/build.py --out FOLDER [--machine aarch64] [--skip-missing] VERSION...
    python3 xtask/shims/build.py --new VERSION...

What is made goes into the wheel with its index, which `drystone/_prebuilt.py` reads. Headers and
objects are kept beside FOLDER, so that a second time nothing is fetched or compiled. Releases whose
objects are the same share a file. What cannot be fetched is an error, unless it may be skipped.
`--new` fails if the package index has releases that are not among these.

Invariant: what is made is linked to nothing that PyTorch has not loaded, asks the C and C++
libraries for nothing newer than manylinux_2_28 has, and every name that it wants of PyTorch is one
that PyTorch's libraries export.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import index  # noqa: E402
from drystone import _native, _prebuilt, _version  # noqa: E402

KEPT = ("torch/include/c10/", "torch/include/torch/headeronly/",
        "torch/include/torch/csrc/api/include/torch/version.h")
LIBRARIES = tuple(f"torch/lib/{name}" for name in _native.LINKED)
# By what they call themselves, libraries that a process has before it loads what is made here.
LOADED = ("libdrystone.so.1", *reversed(_native.LINKED))
# Headers in the place of, or before, those of the C and C++ libraries.
PORTABLE = Path(__file__).with_name("portable")
HEADER = ROOT / "crates/capi/include/drystone.h"
# The first whose wheels have one C++ ABI only, the new one. The index has the old one of others.
ONE_ABI = (2, 7)
# Newest versions of symbols that a manylinux_2_28 system has (PEP 600; auditwheel's policy).
SYMBOLS_MAX = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Compiles the C++ of the package for PyTorch.")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--machine", default=platform.machine())
    parser.add_argument("--skip-missing", action="store_true")
    parser.add_argument("--new", action="store_true")
    parser.add_argument("versions", nargs="+")
    given = parser.parse_args()
    if given.new:
        return new_releases(given.versions)
    shims = Shims(given.out.resolve(), given.machine)
    for version in given.versions:
        try:
            shims.add(version)
        except (subprocess.CalledProcessError, urllib.error.URLError) as error:
            # Without a network there is nothing to compile against.
            print(f"PyTorch {version}: skipped, its wheel cannot be fetched: {error}", flush=True)
            shims.failed |= not given.skip_missing
    shims.finish()
    return 1 if shims.failed else 0


def new_releases(known: list[str]) -> int:
    """Names the releases on the package index that nothing is compiled for."""
    unknown = [one for one in index.versions(_version.OLDEST) if one not in known]
    print("releases that nothing is compiled for:", ", ".join(unknown) or "none")
    return 1 if unknown else 0


class Shims:
    """The folder that goes into the wheel, while it is made."""

    def __init__(self, out: Path, machine: str) -> None:
        self.out, self.machine, self.failed = out, machine, False
        self.compiler = _native.compiler()
        if machine != platform.machine():
            self.compiler = [f"{machine}-linux-gnu-g++"]
        self.kept = out.parent / "kept"
        self.releases: dict[str, dict[str, object]] = {}
        self.files: dict[bytes, str] = {}
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        self.kept.mkdir(exist_ok=True)

    def add(self, version: str) -> None:
        """Makes what a release needs."""
        wheel = self.kept / f"torch-{version}"
        index.fetch(version, wheel, lambda name: name.startswith((*KEPT, *LIBRARIES)))
        include = wheel / "torch/include"
        abis = (1,) if _version.numbers(version) >= ONE_ABI else (0, 1)
        files: dict[str, str] = {}
        for abi in abis:
            try:
                made, headers = self._made(version, abi, include)
                wanted = wants(made)
                if abi == abis[0] and self.machine == platform.machine():
                    has_all(wheel, wanted)
            except ValueError as error:
                print(f"PyTorch {version}, ABI {abi}: {error}", flush=True)
                self.failed = True
                return
            text = made.read_bytes()
            if text not in self.files:
                self.files[text] = _prebuilt.NAME.format(version=version, abi=abi)
                shutil.copyfile(made, self.out / self.files[text])
            files[str(abi)] = self.files[text]
            print(f"PyTorch {version}, ABI {abi}: {files[str(abi)]}, {len(text)} bytes", flush=True)
        self.releases[version] = {
            "digest": _prebuilt.digest_of(include, headers), "files": files, "headers": headers}

    def _made(self, version: str, abi: int, include: Path) -> tuple[Path, list[str]]:
        """The object, and PyTorch's headers that it was made of."""
        command = [
            *self.compiler, f"-I{PORTABLE}", "-include", "older_libstdcxx.h",
            *_native.flags(version, bool(abi)), f"-I{HEADER.parent}", f"-isystem{include}",
            f"-ffile-prefix-map={include}=torch", f"-ffile-prefix-map={ROOT}=drystone"]
        texts = [path.read_text() for path in sorted(PORTABLE.rglob("*.h"))]
        everything = "\0".join([*command, *LOADED, _native.source_digest(HEADER), *texts])
        digest = hashlib.sha256(everything.encode()).hexdigest()[:16]
        made = self.kept / f"{version}-{abi}-{self.machine}-{digest}.so"
        read = made.with_suffix(".d")
        if not made.exists():
            with tempfile.TemporaryDirectory(dir=self.kept) as scratch:
                to = Path(scratch) / made.name
                _run([*command, "-MD", "-MF", str(read), str(_native.SOURCE / _native.MAIN),
                      "-s", "-Wl,-z,now,--build-id=none", "-o", str(to), *self._stubs(Path(scratch))])
                to.rename(made)
        names = re.findall(re.escape(f"{include}/") + r"(\S+)", read.read_text())
        return made, sorted(set(names))

    def _stubs(self, folder: Path) -> list[str]:
        """Libraries of the names of those that are loaded already, and nothing in them."""
        stubs = [folder / name for name in LOADED]
        for stub in stubs:
            _run([*self.compiler, "-shared", "-nostdlib", f"-Wl,-soname,{stub.name}",
                  "-xc++", "/dev/null", "-o", str(stub)])
        return ["-Wl,--no-as-needed", *map(str, stubs), "-Wl,--as-needed"]

    def finish(self) -> None:
        """Writes the index."""
        text = json.dumps(
            {"machine": self.machine, "source": _native.source_digest(HEADER),
             "releases": self.releases}, sort_keys=True)
        (self.out / _prebuilt.INDEX).write_text(text)
        total = sum(path.stat().st_size for path in self.out.iterdir())
        print(f"{len(self.releases)} releases, {len(self.files)} files, {total} bytes")


def wants(made: Path) -> set[str]:
    """The names that an object wants, none of them too new for a system of manylinux_2_28."""
    names = set(_run(["nm", "-D", "--undefined-only", "--format=just-symbols", str(made)]).split())
    for name in names:
        kind, _, number = name.partition("@")[2].strip("@").partition("_")
        if kind in SYMBOLS_MAX and tuple(map(int, number.split("."))) > SYMBOLS_MAX[kind]:
            raise ValueError(f"wants {name}, which is newer than manylinux_2_28")
    return names


def has_all(wheel: Path, names: set[str]) -> None:
    """Refuses an object that wants of PyTorch what its libraries do not export."""
    exported: set[str] = set()
    for library in LIBRARIES:
        exported |= set(_run(["nm", "-D", "--defined-only", "--format=just-symbols",
                              str(wheel / library)]).split())
    missing = {name for name in names if "3c10" in name} - exported
    if missing:
        raise ValueError(f"wants what PyTorch does not have: {', '.join(sorted(missing))}")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
