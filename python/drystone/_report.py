"""The report: what the devices hold, as text and as a page."""

from __future__ import annotations

import os

from . import _document, _page, _text
from ._errors import DrystoneError
from ._write import write


def report(
    html: str | os.PathLike[str] | None, recording: str | os.PathLike[str] | None,
    batch: int | None, version: str,
) -> str:
    """See `drystone.report`."""
    if batch is not None and batch < 1:
        raise DrystoneError(f"a batch of {batch}: give how many there were at a time")
    document = _document.take(recording, batch, version)
    if html is not None:
        write(html, _page.page(document))
    return _text.text(document)
