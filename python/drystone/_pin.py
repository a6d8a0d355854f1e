"""Pins: memory that others know by its address stays where it is.

Lives here: what `drystone.pin_mapping` returns. Invariant: a pin is taken back once.
"""

from __future__ import annotations

import ctypes
from types import TracebackType
from typing import Any

from . import _figures
from ._growable import Growable
from ._library import check, library


class Pin:
    """A pin that is held: until `unpin()`, or the end of a ``with``."""

    def __init__(self, address: int) -> None:
        self.address = address
        _figures.route()
        check(library().drystone_pin_mapping(ctypes.c_void_p(address)))
        self._is_held = True

    def unpin(self) -> None:
        """Takes the pin back; again does nothing."""
        if self._is_held:
            self._is_held = False
            check(library().drystone_unpin_mapping(ctypes.c_void_p(self.address)))

    def __enter__(self) -> Pin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unpin()


def address_of(memory: Any) -> int:
    """Where a tensor's storage starts, or what grows in place; an address is one already."""
    if isinstance(memory, Growable):
        return memory.address
    return memory if isinstance(memory, int) else memory.untyped_storage().data_ptr()
