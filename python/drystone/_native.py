"""Drystone as PyTorch's own kind of allocator: compiled for each PyTorch, and installed.

PyTorch's allocators are C++ objects whose layout changes with almost every version. What is
compiled for releases is part of the wheel; so is the source, which is compiled here for any other
build of PyTorch, once, and kept in a folder of the user's, under a name that says all it depends
on. Invariant: a file under such a name is whole.
"""

from __future__ import annotations

import ctypes
import fcntl
import grp
import hashlib
import os
import platform
import pwd
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from . import _library, _prebuilt
from ._errors import DrystoneError
from ._tell import tell
from ._version import numbers

# The first PyTorch whose headers are C++20. What else differs is in `_cpp/version.h`.
CXX20 = (2, 14)
SOURCE = Path(__file__).with_name("_cpp")
MAIN = "drystone_torch.cpp"
# Of PyTorch's, what the compiled library is linked to.
LINKED = ("libc10.so", "libc10_cuda.so")


def install(native: ctypes.CDLL, fraction: float) -> None:
    """Makes Drystone PyTorch's allocator, at both places where PyTorch keeps it. The fraction is
    what each device's memory is limited to already."""
    native.drystone_native_install.restype = ctypes.c_char_p
    native.drystone_native_install.argtypes = [ctypes.c_double]
    reason = native.drystone_native_install(fraction)
    if reason is not None:
        raise DrystoneError(
            f"PyTorch keeps the allocator it has ({reason.decode()}): call drystone.enable() right "
            "after importing torch")


def load(torch: ModuleType) -> ctypes.CDLL:
    """What is compiled for this PyTorch: in this package, else kept or compiled now."""
    include = Path(torch.__file__).with_name("include")
    try:
        return _loaded(_prebuilt.find(
            torch.__version__, include, torch._C._GLIBCXX_USE_CXX11_ABI, source_digest(_header())))
    except DrystoneError as error:
        missing = error
    try:
        return _loaded(library(torch))
    except DrystoneError as error:
        raise DrystoneError(f"{missing}, and {error}") from error


def library(torch: ModuleType) -> Path:
    """The library kept for this PyTorch, compiled now if it is not there."""
    include = Path(torch.__file__).with_name("include")
    libraries = Path(torch.__file__).with_name("lib")
    header = _header()
    command = [*compiler(), *flags(torch.__version__, torch._C._GLIBCXX_USE_CXX11_ABI)]
    parent = folder()
    try:
        digest = _digest(header, command, libraries)
    except OSError as error:
        raise DrystoneError(
            f"what the compiled library depends on cannot be read ({error}): install PyTorch "
            "anew, or mount /proc") from error
    compiled = parent / f"drystone-torch-{torch.__version__}-{digest}.so"
    try:
        if not compiled.exists():
            # Of many processes that start at once, one compiles.
            with _opened(compiled.with_suffix(".lock")) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not compiled.exists():
                    command += [f"-I{header.parent}", f"-isystem{include}"]
                    _compile(compiled, command, libraries)
        _check_file(compiled)
    except OSError as error:
        raise DrystoneError(
            f"what is compiled for PyTorch cannot be kept in {parent} ({error}): name another "
            "folder in DRYSTONE_CACHE") from error
    return compiled


def _loaded(path: Path) -> ctypes.CDLL:
    """What was compiled, which finds PyTorch and Drystone loaded already."""
    try:
        # It asks for it by name. Where Drystone is preloaded, that serves all the same.
        ctypes.CDLL(_library.own())
        return ctypes.CDLL(str(path), mode=os.RTLD_NOW)
    except OSError as error:
        raise DrystoneError(
            f"what was compiled for this PyTorch cannot be loaded ({error}): remove {path} to "
            "have it compiled anew") from error


def folder() -> Path:
    """Where compiled libraries are kept: the folder that is named, else the first that can be."""
    named = os.environ.get("DRYSTONE_CACHE")
    if named:
        places = [lambda: Path(named)]
    else:
        # A home folder that is not there, as a service's is, is made by nobody, not even by root.
        home = os.path.expanduser("~")
        own = os.path.join(home, ".cache") if os.path.isdir(home) else ""
        caches = os.environ.get("XDG_CACHE_HOME") or own
        places = [lambda: Path(caches) / "drystone"] if os.path.isabs(caches) else []
        # Asked for last, and only then: there may be none.
        places.append(lambda: Path(tempfile.gettempdir()) / f"drystone-{os.getuid()}")
    reasons = []
    for place_of in places:
        try:
            place = place_of()
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_folder(place)
            if os.access(place, os.W_OK):
                return place
            reasons.append(f"{place} cannot be written")
        except OSError as error:
            reasons.append(str(error))
    raise DrystoneError(
        f"there is no folder to keep what is compiled for PyTorch ({'; '.join(reasons)}): name one "
        "in DRYSTONE_CACHE")


def _check_folder(path: Path) -> None:
    """Refuses a folder in which others can place what is loaded."""
    found = path.stat()
    _check_owner(path, found)
    # Of a folder such as /tmp nobody removes what is another's.
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        is_groups = not found.st_mode & 0o002
        if not (is_groups and _is_of_one(found.st_gid)):
            raise PermissionError(f"{path} can be changed by other users: chmod go-w {path}")


def _check_file(path: Path) -> None:
    """Refuses what another user has made or may change, and links."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise PermissionError(f"{path} is a symbolic link, or something else that is no file")
    _check_owner(path, found)
    if found.st_mode & 0o022:
        raise PermissionError(f"{path} can be changed by other users: remove it")


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.getuid()):
        raise PermissionError(f"{path} belongs to user {found.st_uid}")


def _is_of_one(group: int) -> bool:
    """Whether a group is the user's own, of the same name, as many systems make one for each."""
    try:
        user, named = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (group, named.gr_name) and (
        set(named.gr_mem) <= {user.pw_name})


def _opened(path: Path) -> BinaryIO:
    """A file to lock, made if it is not there, but not through a link."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "r+b")


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


def _digest(header: Path, command: list[str], libraries: Path) -> str:
    """Of all that the compiled library depends on, beside PyTorch's version.

    The compiler is there by its command, so that what was compiled serves machines without one.
    """
    digest = hashlib.sha256("\0".join(command[:-1]).encode())
    digest.update(os.fsencode(f"{os.getuid()} {_runtimes()}"))
    digest.update(source_digest(header).encode())
    for name in LINKED:
        digest.update((libraries / name).read_bytes())
    return digest.hexdigest()[:16]


def source_digest(header: Path) -> str:
    """Of what is compiled, and of Drystone's C interface."""
    digest = hashlib.sha256()
    # In a wheel the header lies among the source.
    others = [path for path in SOURCE.rglob("*.*") if path.name != header.name]
    for path in [header, *sorted(others)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _runtimes() -> str:
    """The C and C++ libraries of this process, by version: PyTorch has loaded both."""
    # Names of files may be in any encoding.
    mapped = os.fsdecode(Path("/proc/self/maps").read_bytes())
    names = {Path(line.split()[-1]).name for line in mapped.splitlines() if "/libstdc++.so" in line}
    return " ".join([os.confstr("CS_GNU_LIBC_VERSION") or "", platform.machine(), *sorted(names)])


def compiler() -> list[str]:
    """The C++ compiler's command."""
    named = os.environ.get("CXX", "").split()
    return named or [next(filter(shutil.which, ("c++", "g++", "clang++")), "c++")]


def _compile(to: Path, command: list[str], libraries: Path) -> None:
    if shutil.which(command[0]) is None:
        raise DrystoneError(
            f"there is no C++ compiler ({command[0]}): install one, such as g++, or name it in CXX")
    tell(f"compiling for this build of PyTorch, once, which takes about ten seconds; kept as {to}")
    with tempfile.TemporaryDirectory(dir=to.parent) as scratch:
        made = Path(scratch) / to.name
        link = ["-o", str(made), _library.own(), f"-L{libraries}", "-lc10_cuda", "-lc10"]
        whole = [*command, str(SOURCE / MAIN), *link, "-Wl,-z,now"]
        try:
            done = subprocess.run(whole, capture_output=True, text=True, errors="replace")
        except OSError as error:
            raise DrystoneError(
                f"the C++ compiler {command[0]} cannot be started ({error.strerror}): name another "
                "in CXX") from error
        if done.returncode != 0:
            raise DrystoneError(
                "the C++ compiler cannot compile drystone for this PyTorch: use another by CXX. It "
                f"says:\n{_excerpt(done.stderr)}")
        made.chmod(0o755)
        os.replace(made, to)


def _excerpt(text: str) -> str:
    """The first errors, which are what the others come from."""
    lines = text.splitlines()
    errors = [line for line in lines if "error" in line]
    return "\n".join((errors or lines)[:8])
