"""Runs a notebook's cells in order, as a program: `python _notebook.py NOTEBOOK [ARGS...]`.

Invariant: cells keep their line numbers, and one that fails is named. What only IPython knows, its
magics and commands of the shell, is left out; `left_out` says which.
"""

from __future__ import annotations

import json
import linecache
import re
import sys
import tokenize
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ENDING = ".ipynb"
# Magics of a whole cell whose rest is Python all the same.
STILL_PYTHON = ("%%time", "%%timeit", "%%capture", "%%prun")
# A magic, a command of the shell, or a question; alone or as a value.
MAGIC = re.compile(r"\s*(?:[\w.,\s]+=\s*)?[%!](?![=\s]).*|\s*\?.*|\s*[\w.]+\?{1,2}\s*")


@dataclass(frozen=True)
class Cell:
    """A cell of code: its number among all cells, from 1, its Python, and what was left out."""

    number: int
    text: str
    left_out: list[str]


def read(path: Path) -> list[Cell]:
    """Its cells of code. A `ValueError` says what is wrong with the file."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        sheets = notebook.get("worksheets")  # Until version 3 of the format.
        cells = notebook["cells"] if sheets is None else sheets[0]["cells"]
        about = notebook.get("metadata", {})
        language = about.get("language_info", {}).get("name", "python")
        sources = [cell.get("source", cell.get("input", "")) if cell["cell_type"] == "code"
                   else None for cell in cells]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError("is no notebook") from error
    if not str(language).lower().startswith(("python", "ipython")):
        raise ValueError(f"is a notebook of {language}, not of Python")
    return [_cell(number, source if isinstance(source, str) else "".join(source))
            for number, source in enumerate(sources, 1) if source is not None]


def left_out(cells: list[Cell]) -> str:
    """What is not run, in one line; empty if all of it is."""
    lines = [(cell.number, line) for cell in cells for line in cell.left_out]
    told = ", ".join(f"`{line}` (cell {number})" for number, line in lines[:3])
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return f"left out, being IPython's or the shell's: {told}{more}" if lines else ""


def _cell(number: int, source: str) -> Cell:
    lines = source.split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith("%%") and not first.startswith(STILL_PYTHON):
        return Cell(number, "", [first])
    gone: list[str] = []
    return Cell(number, "\n".join(_python(lines, gone)), gone)


def _python(lines: list[str], gone: list[str]) -> Iterator[str]:
    """As many lines, with `pass` in the place of what is no Python."""
    statement: list[str] = []
    is_continued = False
    for line in lines:
        if is_continued or not statement and MAGIC.fullmatch(line):
            if not is_continued:
                gone.append(line.strip())
            yield "" if is_continued else line[:len(line) - len(line.lstrip())] + "pass"
            is_continued = line.endswith("\\")
            continue
        statement.append(line)
        if not _is_open(statement):
            statement.clear()
        yield line


def _is_open(statement: list[str]) -> bool:
    """Whether the next line goes on with it: a bracket or a text is open."""
    try:
        # What is indented would be an error of its own.
        text = iter(f"{line}\n" for line in ["if 1:", *(f" {line}" for line in statement)])
        for _ in tokenize.generate_tokens(lambda: next(text, "")):
            pass
    except tokenize.TokenError:
        return True
    except SyntaxError:
        pass
    return False


def run(path: Path) -> None:
    """Runs it in a module of its own, with what notebooks have beside Python's own names."""
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    main.__dict__["display"] = print
    sys.path[0] = str(path.resolve().parent)
    for cell in read(path):
        # As a file's: whoever looks for a place in the program passes over others.
        name = f"{path.name}/cell {cell.number}.py"
        # For tracebacks, and for those that look for the source of a function.
        linecache.cache[name] = (
            len(cell.text), None, cell.text.splitlines(keepends=True), name)
        exec(compile(cell.text, name, "exec"), main.__dict__)


if __name__ == "__main__":
    sys.argv.pop(0)
    try:
        run(Path(sys.argv[0]))
    except Exception:
        # The interpreter itself would not show the lines of cells.
        traceback.print_exc()
        sys.exit(1)
