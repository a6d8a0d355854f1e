"""Tags: what memory is for, in the program's words.

Lives here: what `drystone.tag` does. Invariant: the library alone knows which block has which tag.
"""

from __future__ import annotations

import ctypes

from . import _figures
from ._library import check, library


def tag(address: int, name: str | None) -> None:
    """See `drystone.tag`."""
    _figures.route()
    # A name with a NUL would end there: what is before it is not what was asked for.
    if name is not None and "\0" in name:
        raise ValueError("a tag's name contains a NUL")
    text = None if name is None else ctypes.c_char_p(name.encode())
    check(library().drystone_tag(ctypes.c_void_p(address), text))
