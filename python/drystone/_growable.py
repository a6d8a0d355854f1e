"""Memory that grows and shrinks at an address that never changes, and tensors over it.

Lives here: what `drystone.reserve` returns. Invariant: the memory lives as long as the object or
any tensor over it, unless it is freed by name: by `free()`, or at the end of a `with`.
"""

from __future__ import annotations

import ctypes
import operator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _figures
from ._errors import DrystoneError
from ._library import check, library

if TYPE_CHECKING:
    import torch


def _size(count: int) -> ctypes.c_size_t:
    """A size as C takes it, which would cut off what is negative or too large."""
    value = operator.index(count)
    if not 0 <= value < 1 << 64:
        raise DrystoneError(f"{value} is no number of bytes")
    return ctypes.c_size_t(value)


class _Bytes:
    """A range of device memory, as others take it over (CUDA array interface, version 3)."""

    def __init__(self, owner: Growable, count: int) -> None:
        self._owner = owner
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (count,), "typestr": "|u1", "data": (owner.address, False), "version": 3,
        }


class Growable:
    """Reserved addresses on a device, with memory up to a front that moves: a cache, say."""

    def __init__(self, max_bytes: int, device: int, stream: int) -> None:
        self.address = 0
        self.device = device
        _figures.route()
        out = ctypes.c_void_p()
        check(library().drystone_growable_reserve(
            ctypes.byref(out), _size(max_bytes), device, ctypes.c_void_p(stream)))
        self.address = out.value or 0

    def _call(self, name: str, *arguments: Any) -> None:
        call = getattr(library(), f"drystone_growable_{name}")
        check(call(ctypes.c_void_p(self.address), *arguments))

    def _sizes(self) -> tuple[int, int]:
        count, room = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("size", ctypes.byref(count), ctypes.byref(room))
        return count.value, room.value

    @property
    def bytes(self) -> int:
        """How many bytes there are."""
        return self._sizes()[0]

    @property
    def room_bytes(self) -> int:
        """How many bytes there can be."""
        return self._sizes()[1]

    def grow_to(self, count: int) -> None:
        """Makes it so many bytes; those before stay as they are. Does nothing if there are more."""
        self._call("grow_to", _size(count))

    def shrink_to(self, count: int) -> None:
        """Keeps so many bytes. Tensors must not reach beyond them any more."""
        self._call("shrink_to", _size(count))

    def commit_rest(self, margin_bytes: int) -> int:
        """Grows over all that is left of the device but for a margin. Returns the bytes it has.

        The margin is what everything else may ask for beside what is in use now.
        """
        count = ctypes.c_size_t()
        self._call("commit_rest", _size(margin_bytes), ctypes.byref(count))
        return count.value

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        """Notes that it is also used on another stream than its own."""
        self._call("record_use", ctypes.c_void_p(stream.cuda_stream))

    def tensor(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """All whole elements that there are now, as a tensor of one dimension over the memory.

        It does not grow along: ask again. The memory lives as long as the tensor.
        """
        import torch
        dtype = torch.uint8 if dtype is None else dtype
        count = self.bytes // dtype.itemsize * dtype.itemsize
        device = torch.device("cuda", self.device)
        if count == 0:
            return torch.empty(0, dtype=dtype, device=device)
        return torch.as_tensor(_Bytes(self, count), device=device).view(dtype)

    def free(self) -> None:
        """Frees it now, and not with the last tensor over it. Again does nothing."""
        if self.address:
            self._call("free")
            self.address = 0

    def __enter__(self) -> Growable:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.free()

    def __del__(self) -> None:
        if self.address:
            # Nobody is there to tell of a failure; at exit the device goes with all it has.
            library().drystone_growable_free(ctypes.c_void_p(self.address))
