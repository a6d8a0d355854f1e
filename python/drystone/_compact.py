"""Live memory that moves together behind its addresses, by hand.

Lives here: what `drystone.compact` does.
"""

from __future__ import annotations

import ctypes

from . import _figures
from ._library import check, library


def compact(milliseconds: int, device: int | None) -> int:
    """See `drystone.compact`."""
    import torch
    if device is None:
        device = torch.cuda.current_device()
    _figures.route()
    moved = ctypes.c_size_t()
    check(library().drystone_compact(device, ctypes.c_uint(max(milliseconds, 0)), ctypes.byref(moved)))
    return moved.value
