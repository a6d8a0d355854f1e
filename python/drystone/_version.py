"""Which versions of PyTorch Drystone knows, and how to tell them apart. Imports no PyTorch."""

from __future__ import annotations

from ._errors import DrystoneError

# Versions whose hooks and whose C++ are known.
OLDEST, NEWEST = (2, 6), (2, 15)


def numbers(version: str) -> tuple[int, ...]:
    """Major and minor of a version."""
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])


def name(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def check_version(version: str) -> None:
    """Refuses what is too old or too new."""
    found = numbers(version)
    if found < OLDEST:
        raise DrystoneError(
            f"PyTorch {version} is too old: drystone needs {name(OLDEST)} or newer")
    if found > NEWEST:
        raise DrystoneError(
            f"PyTorch {version} is newer than what this drystone knows, {name(NEWEST)}: "
            "install a newer drystone")
