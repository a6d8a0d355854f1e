"""Pools for graphs that run at the same time.

Lives here: what `drystone.graph_pool` returns. Invariant: the allocator's pool exists as long as the
handle, so that what was said of it holds for every capture that is given the handle.
"""

from __future__ import annotations

import torch

from . import _figures
from ._library import check, library


class SharedPool(tuple[int, int]):
    """A handle as `torch.cuda.graph_pool_handle` returns, of a pool on the current device."""

    _device: int

    @classmethod
    def make(cls) -> SharedPool:
        _figures.route()
        pool = cls(torch.cuda.graph_pool_handle())
        device = torch.cuda.current_device()
        check(library().drystone_pool_create(device, *pool))
        pool._device = device
        check(library().drystone_set_pool_exclusive(device, *pool, 0))
        return pool

    def __del__(self) -> None:
        if hasattr(self, "_device"):
            # At exit nothing is left to release.
            library().drystone_pool_destroy(self._device, *self)
