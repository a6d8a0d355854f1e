"""Tables as text or as one HTML page that needs nothing else.

Invariants: a cell that is a number from 0 to 1 is drawn as a bar of that length; whatever names a
program has, nothing that a terminal would obey is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ._gpus import MIB, Range

BAR = 40
UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (MIB, "MiB"), (1 << 10, "KiB"))
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse}
td,th{padding:.15em .8em;text-align:left;border-bottom:1px solid #ddd}
i{display:inline-block;height:.8em;background:#47a}pre{white-space:pre-wrap}"""


@dataclass
class Table:
    """Rows under a heading, with a sentence below."""

    title: str
    columns: list[str]
    rows: list[list[str | float]]
    note: str = ""


def bytes_text(bytes: int) -> str:
    """A size with three or four digits."""
    for unit, name in UNITS:
        if abs(bytes) >= unit:
            return f"{bytes / unit:.2f} {name}"
    return f"{bytes} B"


def range_text(one: Range) -> str:
    """Both ends, or the one figure."""
    if one.low == one.high:
        return bytes_text(one.low)
    return f"{bytes_text(one.low)} to {bytes_text(one.high)}"


def text(title: str, tables: list[Table]) -> str:
    """For a terminal."""
    return _harmless("\n\n".join([title, *map(_table_text, tables)]))


def _harmless(text: str) -> str:
    return "".join(letter if letter == "\n" or letter.isprintable() else "\ufffd"
                   for letter in text)


def _table_text(table: Table) -> str:
    rows = [[cell if isinstance(cell, str) else "█" * round(cell * BAR) for cell in row]
            for row in [table.columns, *table.rows]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
             for row in rows]
    return "\n".join([table.title, *(f"  {line}".rstrip() for line in lines if line.strip()),
                      *([table.note] if table.note else [])])


def page(title: str, tables: list[Table]) -> str:
    """One HTML page."""
    return _harmless(
        f"<!doctype html><meta charset=utf-8><title>drystone dry-run</title>"
        f"<style>{STYLE}</style><h1>Dry run</h1><pre>{escape(title)}</pre>"
        + "".join(map(_table_html, tables)) + "\n")


def _table_html(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}" for name in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{_cell_html(cell)}" for cell in row)
                   for row in table.rows)
    return (f"<h2>{escape(table.title)}</h2><table><tr>{head}{rows}</table>"
            f"<p>{escape(table.note)}</p>")


def _cell_html(cell: str | float) -> str:
    return escape(cell) if isinstance(cell, str) else f"<i style='width:{cell * BAR:.1f}em'></i>"
