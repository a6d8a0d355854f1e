"""Writing a file whole or not at all: whoever reads it at that moment sees the old one.

Invariant: nothing is written through a link that somebody has put beside it.
"""

from __future__ import annotations

import contextlib
import os
import stat

from ._errors import DrystoneError


def write(path: str | os.PathLike[str], content: str) -> None:
    """Puts a file in its place. No file is left where that fails, and no device is replaced."""
    path = os.fsdecode(path)
    part = f"{path}.{os.getpid()}.part"
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise OSError("it is there, and no regular file")
        with contextlib.suppress(FileNotFoundError):
            # Of a process of this number that has died.
            os.unlink(part)
        with open(part, "x", encoding="utf-8") as file:
            file.write(content)
        os.replace(part, path)
    except (OSError, UnicodeError) as error:
        with contextlib.suppress(OSError):
            os.unlink(part)
        reason = getattr(error, "strerror", None) or error
        raise DrystoneError(f"cannot write {path}: {reason}") from error
