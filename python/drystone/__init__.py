"""Drystone, a CUDA caching allocator, as PyTorch's allocator.

Lives here: what the package offers, and nothing that imports PyTorch or loads a library before it
is asked to.
"""

from __future__ import annotations

from ._errors import DrystoneError, NotSupportedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging
    import os

    import torch
    from torch import Tensor

    from ._growable import Growable
    from ._monitor import Monitor
    from ._pin import Pin

__version__ = "0.1.0"
__all__ = [
    "DrystoneError", "NotSupportedError", "available", "compact", "enable", "graph_pool", "is_enabled", "library_path",
    "metrics", "monitor", "pin_mapping", "report", "reserve", "tag",
]


def enable(*, route: str | None = None, **options: object) -> None:
    """Makes Drystone PyTorch's allocator for CUDA, for as long as the process lives.

    Must be called before CUDA is used, once. The options are those of ``DRYSTONE_CONF``, such as
    ``limit="20GiB"`` or ``backend="vmm"``; without any that variable's hold. Whatever stands in the
    way is one `DrystoneError` that says what to do.

    No feature of PyTorch's is lost: history, snapshots, pools, trees of graphs. The wheel brings what
    that takes for each release of PyTorch; another build takes a C++ compiler, once. Where there is
    none, Drystone is a plug-in of PyTorch, which can do less, and a line on standard error says so.
    ``route="compiled"`` is an error instead; ``route="plugin"`` is always the plug-in.
    """
    from ._enable import enable as enable_now
    enable_now(options, route)


def is_enabled() -> bool:
    """Whether Drystone is PyTorch's allocator in this process."""
    import sys
    enabling = sys.modules.get("drystone._enable")
    return enabling is not None and enabling.is_enabled


def library_path() -> str:
    """Where ``libdrystone.so`` is: what ``DRYSTONE_LIBRARY`` says, else inside this package."""
    from ._library import path
    return path()


def report(
    html: str | os.PathLike[str] | None = None, *,
    recording: str | os.PathLike[str] | None = None, batch: int | None = None,
) -> str:
    """What every device in use holds, as text; with ``html`` also as a page, written to that file.

    What PyTorch's own allocators would hold is told by the ``drystone`` command, if it is
    installed, from the history of allocations, if that is being recorded, else from
    ``recording``: a snapshot or trace of this program made before. It ends with what there is
    room for: with ``batch``, the size of the batches so far, how large they could be.
    """
    from ._report import report as report_now
    return report_now(html, recording, batch, __version__)


def metrics() -> str:
    """The figures of every device in use, in Prometheus' text format."""
    from ._metrics import metrics as metrics_now
    return metrics_now()


def monitor(
    interval_s: float = 10.0, *, logger: logging.Logger | str | None = None,
    file: str | os.PathLike[str] | None = None, port: int | None = None,
    address: str = "127.0.0.1",
) -> Monitor:
    """Tells the figures of every device in use again and again, from a thread of its own.

    Each time is a line per device in the log (``logging.getLogger("drystone")``, unless
    ``logger``, or its name, is given). With ``file``, Prometheus' text format is written to that file each
    time, whole or not at all; with ``port``, it is served at ``http://address:port/metrics``,
    where port 0 takes any that is free. The result stops it: ``stop()``, or the end of a ``with``.
    """
    from ._monitor import Monitor
    return Monitor(interval_s, logger, file, port, address)


def pin_mapping(memory: Tensor | Growable | int) -> Pin:
    """Keeps a tensor's memory, or the block at an address, where it is, also once it is freed.

    For memory that was registered with a network card or NCCL, or given to another process: it is
    not remapped or given back before ``unpin()`` of the result, or the end of a ``with``. Other
    tensors may be placed there as ever. Not with ``backend="async"``.
    """
    from ._pin import Pin, address_of
    return Pin(address_of(memory))


def graph_pool(*, exclusive: bool = True) -> tuple[int, int]:
    """A pool for ``torch.cuda.graph(..., pool=...)``, as ``torch.cuda.graph_pool_handle()`` gives.

    Graphs of one pool share memory: what one capture freed serves the next, on whatever stream.
    PyTorch allows that for graphs that are replayed in the order of their captures and never at the
    same time. Do yours run at the same time, on different streams? ``exclusive=False`` keeps what
    each stream freed for that stream, as PyTorch's own allocator does.
    """
    if exclusive:
        import torch
        return torch.cuda.graph_pool_handle()
    from ._graph_pool import SharedPool
    return SharedPool.make()


def compact(milliseconds: int = 1000, *, device: int | None = None) -> int:
    """Moves live memory together on a device, for about so long at most; the bytes copied.

    What lay unused between live tensors serves larger requests afterwards, or goes back with
    ``torch.cuda.empty_cache()``. Addresses stay, so no tensor notices. Streams stand still for a
    moment. By itself this happens where a request would be refused, and in ``empty_cache``, if
    Drystone knows all streams: ``drystone doctor`` says whether. Called by hand, you answer for it
    that no other library uses tensors meanwhile on streams of its own.
    """
    from ._compact import compact as compact_now
    return compact_now(milliseconds, device)


def available(*, device: int | None = None) -> int:
    """How many bytes can be had of a device: free on it, unused here, and unused at neighbours.

    Neighbours are other processes of the same user on the device that run Drystone: a request that
    is refused gets what they hold unused. They are asked, which takes milliseconds at most. To size
    a cache by; somebody else may be faster.
    """
    from ._available import available as available_now
    return available_now(device)


def tag(memory: Tensor | Growable | int, name: str | None) -> None:
    """Counts a tensor's memory, what `reserve` gave, or the block at an address, under a name.

    It holds until that memory is freed.

    ``drystone.tag(cache, "kv")``: `report` tells how much each name has, now and at most.
    A block has one name at most; ``None`` takes it away. Views of a tensor are one memory.
    """
    from ._pin import address_of
    from ._tag import tag as tag_now
    tag_now(address_of(memory), name)


def reserve(
    max_bytes: int, *, device: torch.device | str | int | None = None,
) -> Growable:
    """Reserves addresses for memory that grows and shrinks in place, on PyTorch's current stream.

    For a cache that grows with the conversation: its address never changes, nothing is copied, and
    CUDA graphs over it stay valid. Physical memory is behind the bytes that there are, in whole
    granules of 2 MiB, and counts as any other of Drystone's. ``grow_to``, ``shrink_to``,
    ``commit_rest``, and ``tensor`` for a tensor over it. Not with ``backend="async"``.
    """
    import torch

    from ._growable import Growable
    device = torch.cuda._utils._get_device_index(device, optional=True)
    return Growable(max_bytes, device, torch.cuda.current_stream(device).cuda_stream)
