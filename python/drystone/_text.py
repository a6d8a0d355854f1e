"""A report as text.

Invariant: all that the page tells in words is here too; what it draws is left out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from ._figures import Tree


def text(document: Tree) -> str:
    """The report of a document: see `_document`."""
    lines = [document["note"]]
    for section in document["sections"]:
        lines += ["", section["title"]]
        for part in section["parts"]:
            told = [f"  {part['text']}"] if "text" in part else []
            if "table" in part:
                told += _table(**part["table"])
            if told and part.get("title"):
                lines += ["", f"  {part['title']}"]
            lines += told
    return "\n".join(map(printable, lines)) + "\n"


def printable(line: str) -> str:
    """A line without control characters and those that turn the order of others: names of files and
    functions in a recording may hold anything."""
    return "".join("\ufffd" if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp", "Cs") else one
                   for one in line)


def _table(heads: list[str], rows: list[list[str]], words: list[int]) -> Iterable[str]:
    """Columns: words to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = (cell.ljust(width) if at in words else cell.rjust(width)
                 for at, (cell, width) in enumerate(zip(row, widths, strict=True)))
        yield f"  {'  '.join(cells)}".rstrip()
