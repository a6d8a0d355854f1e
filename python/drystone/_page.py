"""A report as one page that needs nothing else: no network and no server.

Invariant: the page is the `drystone` command's own; here its template is filled with a document.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ._errors import DrystoneError
from ._figures import Tree

# Where the template is: in this package, or in the source that this file is part of.
PLACES = (
    Path(__file__).parent / "_html",
    Path(__file__).parents[2] / "crates/tools/cli/src/report/html")


def page(document: Tree) -> str:
    """The page of a document: see `_document`."""
    folder = next((place for place in PLACES if place.is_dir()), None)
    if folder is None:
        raise DrystoneError(
            f"the page is neither in {PLACES[0]} nor in {PLACES[1]}: install the drystone wheel")
    # Inside a text `<` may be written as an escape; elsewhere in JSON it cannot occur.
    data = json.dumps(document).replace("<", "\\u003c")

    def content(mark: re.Match[str]) -> str:
        return data if mark[1] == "data" else (folder / mark[1]).read_text("utf-8")
    return re.sub(r"\{\{([\w.]+)\}\}", content, (folder / "page.html").read_text("utf-8"))
