"""The report: what the devices hold, as text and as a page."""

from __future__ import annotations

import os

from . import _document, _page, _text
from ._write import write


def report(
    html: str | os.PathLike[str] | None, recording: str | os.PathLike[str] | None, version: str,
) -> str:
    """See `drystone.report`."""
    document = _document.take(recording, version)
    if html is not None:
        write(html, _page.page(document))
    return _text.text(document)
