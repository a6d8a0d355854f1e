"""Tells what PyTorch's recorder has no entry for, by annotations that `drystone` reads.

Where the host waits for the device, where the cache is given back, where a capture begins and ends
(docs/use/traces.md, *PyTorch snapshots*). An annotation has whole microseconds, as entries have:
each is alone in its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

US = 1000


def enable() -> None:
    """From now on the program annotates itself."""
    for name in ("synchronize", "empty_cache"):
        setattr(torch.cuda, name, _annotated(f"torch.cuda.{name}", getattr(torch.cuda, name)))
    graph = torch.cuda.graph
    graph.__enter__, graph.__exit__ = _entered(graph.__enter__), _left(graph.__exit__)


def _apart() -> None:
    end_ns = time.perf_counter_ns() + 2 * US
    while time.perf_counter_ns() < end_ns:
        pass


def _annotated(name: str, call: Callable[..., object]) -> Callable[..., object]:
    def annotated(*arguments: object, **named: object) -> object:
        with torch.profiler.record_function(name):
            result = call(*arguments, **named)
            _apart()
        _apart()
        return result
    return annotated


def _entered(enter: Callable[..., object]) -> Callable[..., object]:
    def entered(self: torch.cuda.graph) -> object:
        # A graph without a pool has one of its own, which it tells only once it is made.
        self.pool = self.pool or (torch.cuda.graph_pool_handle(),)
        result = enter(self)
        stream, pool = self.capture_stream.cuda_stream, self.pool[0]
        name = f"torch.cuda.graph stream={stream} pool={pool[0]},{pool[1]}"
        self.note = torch.profiler.record_function(name)
        _apart()
        self.note.__enter__()
        _apart()
        return result
    return entered


def _left(leave: Callable[..., object]) -> Callable[..., object]:
    def left(self: torch.cuda.graph, *error: object) -> object:
        result = leave(self, *error)
        _apart()
        self.note.__exit__(None, None, None)
        _apart()
        return result
    return left
