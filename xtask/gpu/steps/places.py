"""Where a run may write: its results, each file whole or not at all, and what it needs for a while.

Invariant: a folder that is full, closed, or not ours costs a line on the screen, and no step.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from page import page

#: The package, unpacked, and what PyTorch's compilers make; more than that is enough.
ROOM = 256 << 20
#: Beside the usual ones, those of memory and those that outlive a restart.
FOLDERS = ("/dev/shm", "/var/tmp")


def temporary() -> Iterator[Path]:
    """Folders for temporary files: the usual one first, which may be full."""
    try:
        yield Path(tempfile.gettempdir())
    except OSError as error:
        print(error, flush=True)
    yield from map(Path, FOLDERS)


def spare_bytes(folder: Path) -> int:
    """What can be written there, and run from there; 0 if nothing can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"a")
        refuses = os.statvfs(folder).f_flag & os.ST_NOEXEC
        return 0 if refuses else shutil.disk_usage(folder).free
    except OSError:
        return 0


def roomy(*others: Path) -> Path | None:
    """A folder for a while, from now on that of all temporary files: the first with room enough,
    or that with most. The steps are told."""
    folders = [*temporary(), *others]
    spare = {folder: spare_bytes(folder) for folder in folders}
    found = next((folder for folder in folders if spare[folder] >= ROOM), None)
    found = found or max(folders, key=lambda folder: spare[folder])
    if not spare[found]:
        return None
    tempfile.tempdir = os.environ["TMPDIR"] = str(found)
    return found


def is_ours(folder: Path) -> bool:
    """No link, and nobody else's: its name can be guessed."""
    try:
        told = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(told.st_mode) and told.st_uid == os.getuid()


class Results:
    """The files of results, in the folder that was asked for, or in one of the same name each time
    where that takes nothing."""

    def __init__(self, wanted: Path) -> None:
        name = f"drystone-gpu-{os.getuid()}"
        self._others = [folder / name for folder in temporary()]
        self.folder: Path | None = wanted
        try:
            wanted.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=wanted):
                pass
        except OSError as error:
            self._move(error)

    def _move(self, why: OSError) -> None:
        """To the next folder that is there and ours."""
        self.folder = None
        while self._others and self.folder is None:
            folder = self._others.pop(0)
            try:
                folder.mkdir(mode=0o700, exist_ok=True)
                self.folder = folder if is_ours(folder) else None
            except OSError:
                pass
        to = f"the results go to {self.folder}" if self.folder else "the results go nowhere"
        print(f"{why}; {to}", flush=True)

    def earlier(self) -> dict[str, object]:
        """What an earlier run left, there or where it had to go; nothing, if none can be read."""
        for folder in filter(None, (self.folder, *filter(is_ours, self._others))):
            try:
                found = json.loads((folder / "results.json").read_text())
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                print(f"{folder}/results.json cannot be read: {error}", flush=True)
                continue
            print(f"goes on from {folder}/results.json", flush=True)
            return found
        return {}

    def write(self, results: dict[str, object]) -> None:
        texts = {"results.json": json.dumps(results, indent=1), "results.html": page(results)}
        while self.folder:
            try:
                for name, text in texts.items():
                    self._put(name, text)
                return
            except OSError as error:
                self._move(error)

    def _put(self, name: str, text: str) -> None:
        part = self.folder / f".{name}.part"
        try:
            part.write_text(text)
            part.replace(self.folder / name)
        except OSError:
            part.unlink(missing_ok=True)
            raise
