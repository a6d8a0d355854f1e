"""What PyTorch asks its own allocator for, answered by Drystone.

PyTorch's functions on memory are Python over a few functions of `torch._C`. Those are replaced
there, so that every function above them, under whatever name a program has it, keeps its meaning
with its own checks and its own formatting.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from . import _library
from ._errors import NotSupportedError
from ._version import numbers

Tree = dict[str, Any]

SIZE_CLASSES = {"all": None, "small_pool": "small", "large_pool": "large"}
# PyTorch's group of figures, and Drystone's gauge.
GAUGES = {
    "allocation": "allocations",
    "segment": "segments",
    "active": "active_blocks",
    "allocated_bytes": "allocated_bytes",
    "reserved_bytes": "reserved_bytes",
    "active_bytes": "active_bytes",
    "requested_bytes": "requested_bytes",
}
# Blocks that keep a segment from being given back. Drystone gives back every whole handle that is
# free, so there are none, as with expandable segments.
SPLIT = ("inactive_split", "inactive_split_bytes")
# Blocks above max_split_size, which is not limited.
OVERSIZE = ("oversize_allocations", "oversize_segments")
NOTHING = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}

# What no plug-in can do and what does instead, by the function of `torch._C`.
TREES = (
    "a tree of CUDA graphs, such as torch.compile(mode=\"reduce-overhead\") makes,",
    "choose another mode, or torch.cuda.graph")
REFUSED = {
    "_cuda_getCheckpointState": TREES,
    "_cuda_setCheckpointPoolState": TREES,
    "_cuda_checkPoolLiveAllocations": TREES,
}


class Accumulated:
    """Totals since the last reset, of one device, where the library's are since its start."""

    def __init__(self) -> None:
        self._at_reset: dict[tuple[str, str], tuple[int, int]] = {}
        self._refusals_at_reset = self._retries_at_reset = 0

    def reset(self, device: int) -> None:
        stats = _library.stats(device)
        for group, size_class, gauge in _gauges(stats):
            freed = gauge["total"] - gauge["current"]
            self._at_reset[group, size_class] = (gauge["total"], freed)
        self._refusals_at_reset = _library.refusals(device)
        self._retries_at_reset = stats["retries"]

    def tree(self, device: int) -> Tree:
        """The statistics as PyTorch has them."""
        stats = _library.stats(device)
        tree: Tree = {group: {} for group in (*GAUGES, *SPLIT)}
        for group, size_class, gauge in _gauges(stats):
            allocated, freed = self._at_reset.get((group, size_class), (0, 0))
            tree[group][size_class] = {
                "current": gauge["current"],
                "peak": gauge["peak"],
                "allocated": gauge["total"] - allocated,
                "freed": gauge["total"] - gauge["current"] - freed,
            }
        for group in SPLIT:
            tree[group] = {size_class: dict(NOTHING) for size_class in SIZE_CLASSES}
        tree.update({group: dict(NOTHING) for group in OVERSIZE})
        tree.update(self._counters(device, stats["retries"], tree["segment"]["all"]))
        return tree

    def _counters(self, device: int, retries: int, segments: dict[str, int]) -> dict[str, int]:
        refusals = _library.refusals(device) - self._refusals_at_reset
        return {
            "num_alloc_retries": retries - self._retries_at_reset,
            "num_ooms": refusals,
            "num_sync_all_streams": 0,
            "num_device_alloc": segments["allocated"],
            "num_device_free": segments["freed"],
            "max_split_size": -1,
        }


def _gauges(stats: Tree) -> list[tuple[str, str, dict[str, int]]]:
    """Every gauge with its group and its size class in PyTorch's names."""
    found = []
    for group, name in GAUGES.items():
        for size_class, part in SIZE_CLASSES.items():
            found.append((group, size_class, (stats if part is None else stats[part])[name]))
    return found


class Replacements:
    """The functions that take the place of those of `torch._C`, by name."""

    def __init__(self, torch: ModuleType, fraction: float) -> None:
        self._torch = torch
        # Of devices that are given none of their own.
        self._fraction = fraction
        self._version = numbers(torch.__version__)
        self._accumulated: dict[int, Accumulated] = {}
        self._fractions: dict[int, float] = {}
        self._set_fraction = torch._C._cuda_setMemoryFraction
        self._empty_cache = torch._C._cuda_emptyCache
        self._set_benchmark = torch._C._set_cudnn_benchmark

    def functions(self) -> dict[str, Callable[..., Any]]:
        cuda = {
            "_cuda_memoryStats": self.stats,
            "_cuda_resetPeakMemoryStats": _library.reset_peaks,
            "_cuda_resetAccumulatedMemoryStats": self.reset_accumulated,
            "_cuda_memorySnapshot": self.snapshot,
            "_cuda_setMemoryFraction": self.set_fraction,
            "_cuda_getMemoryFraction": self.fraction,
            "_cuda_isHistoryEnabled": lambda: False,
            "_cuda_record_memory_history": no_history,
            "_cuda_record_memory_history_legacy": no_history,
            "_set_cudnn_benchmark": self.set_benchmark,
            "_cuda_attach_out_of_memory_observer": no_observer,
        }
        accelerator = {
            "_accelerator_isAllocatorInitialized": self._torch.cuda.is_initialized,
            "_accelerator_emptyCache": self._empty_cache,
            "_accelerator_getDeviceStats": self.accelerator_stats,
            "_accelerator_resetPeakStats": _library.reset_peaks,
            "_accelerator_resetAccumulatedStats": self.reset_accumulated,
            "_accelerator_getMemoryInfo": self._torch.cuda.mem_get_info,
        }
        refused = {name: _refusing(*reason) for name, reason in REFUSED.items()}
        return cuda | accelerator | refused

    def _of(self, device: int) -> Accumulated:
        return self._accumulated.setdefault(device, Accumulated())

    def stats(self, device: int) -> Tree:
        found = self.accelerator_stats(device)
        if self._version >= (2, 12):
            # Nothing is refused before it is tried.
            found["num_oom_rejections"] = 0
        return found

    def accelerator_stats(self, device: int) -> Tree:
        return self._of(device).tree(device)

    def reset_accumulated(self, device: int) -> None:
        self._of(device).reset(device)

    def set_fraction(self, fraction: float, device: int) -> None:
        if not 0 <= fraction <= 1:
            raise RuntimeError(f"invalid fraction:{fraction}. Please set within (0, 1).")
        self._set_fraction(fraction, device)
        self._fractions[device] = fraction

    def fraction(self, device: int) -> float:
        return self._fractions.get(device, self._fraction)

    def set_benchmark(self, value: bool) -> None:
        """Stays off, aloud: with it, every convolution would fail. Results are the same."""
        if value:
            warnings.warn(
                "torch.backends.cudnn.benchmark stays off while drystone is a plug-in of PyTorch: "
                "it asks the allocator how much it could give, which no plug-in is asked; "
                "the compiled route can tell",
                RuntimeWarning, stacklevel=3)
        self._set_benchmark(False)

    def snapshot(self, pool: tuple[int, ...] | None = None) -> Tree:
        """All, or the segments of one pool. There is no history."""
        found = _library.snapshot()
        if self._version >= (2, 14):
            # Of pinned memory, as far as it is recorded.
            found.update(host_segments=[], host_traces=[])
        if pool is not None and tuple(pool[:2]) != (0, 0):
            wanted = tuple(pool[:2])
            found["segments"] = [
                one for one in found["segments"] if tuple(one["segment_pool_id"]) == wanted]
        return found


def install(torch: ModuleType, fraction: float) -> None:
    """Puts everything in its place. The fraction is what devices are limited to already."""
    replacements = Replacements(torch, fraction)
    for name, function in replacements.functions().items():
        # What this version of PyTorch does not have nothing asks for.
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)
    # The property `torch.backends.cudnn.benchmark` has kept the function it replaces.
    vars(type(torch.backends.cudnn))["benchmark"].setter = replacements.set_benchmark
    if torch.backends.cudnn.benchmark:
        replacements.set_benchmark(True)
    profile = torch.autograd.profiler.profile
    profile.__init__ = _telling_of_memory(profile.__init__)
    torch.UntypedStorage._share_cuda_ = _refusing(
        "memory that another process sees", "send a copy on the CPU",
        ", backend=\"malloc\"")
    torch.cuda.memory.MemPool.__init__ = _refusing(
        "torch.cuda.MemPool", "use torch.cuda.graph_pool_handle() for graphs")


def no_history(enabled: object = None, *_: object, **__: object) -> None:
    """Programs go on without one: it changes nothing that they compute."""
    if enabled:
        _say_once(
            "there is no history of allocations while drystone is a plug-in of PyTorch: snapshots "
            "have the present state alone; drystone.enable(route=\"compiled\") has it")


def no_observer(*_: object) -> None:
    """It is never called."""
    _say_once(
        "observers of out of memory are not told while drystone is a plug-in of PyTorch: catch "
        "torch.OutOfMemoryError; drystone.enable(route=\"compiled\") tells them")


def _telling_of_memory(start: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(start)
    def init(self: object, *arguments: Any, **options: Any) -> None:
        if options.get("profile_memory"):
            _say_once(
                "the profiler has no memory events of GPUs while drystone is a plug-in of PyTorch: "
                "torch.cuda.memory_stats() has the figures; drystone.enable(route=\"compiled\") "
                "tells the profiler, too")
        start(self, *arguments, **options)
    return init


@functools.cache
def _say_once(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=4)


def _refusing(
    what: str, instead: str, options: str = "",
) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise NotSupportedError(
            f"{what} is not possible while drystone is a plug-in of PyTorch: enable it by "
            f"drystone.enable(route=\"compiled\"{options}), or {instead}")
    return refuse
