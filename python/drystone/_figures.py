"""What the devices hold, gathered from the library: the figures that reports and monitors tell.

Invariant: asks only the C interface, so it is the same however Drystone came into the process; and
asks only of devices in use, since asking of another one would open it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from . import _library
from ._errors import DrystoneError

Tree = dict[str, Any]

LIVE = "active_allocated"
FREE = "inactive"


@dataclass
class Account:
    """What one pool, scale and stream have, in bytes."""

    name: str
    active: int
    # The most that was in use at one time.
    peak: int
    live: int
    free: int
    largest_free: int

    @property
    def pending(self) -> int:
        return self.active - self.live

    @property
    def reserved(self) -> int:
        return self.active + self.free


@dataclass
class Device:
    """One device in use."""

    ordinal: int
    # As `drystone_stats_json` has them.
    stats: Tree
    largest_free: int
    accounts: list[Account] = field(default_factory=list)
    # As a snapshot has them.
    segments: list[Tree] = field(default_factory=list)

    def now(self, gauge: str) -> int:
        """A gauge's present value."""
        return self.stats[gauge]["current"]

    @property
    def idle(self) -> int:
        """Bytes held that back nothing: they serve whatever is asked for next."""
        accounted = sum(account.reserved for account in self.accounts)
        return max(self.now("reserved_bytes") - accounted, 0)


def route() -> str:
    """How Drystone came into this process; an error if it did not."""
    enabling = sys.modules.get("drystone._enable")
    if enabling is not None and enabling.is_enabled:
        return "PyTorch's allocator"
    if _library.serves_by_preload():
        return "preloaded"
    raise DrystoneError(
        "drystone serves nothing in this process: call drystone.enable() before CUDA is used, or "
        "start the program by python -m drystone, or with libdrystone_preload.so in LD_PRELOAD")


def totals() -> list[Device]:
    """Every device in use, without its accounts and segments."""
    route()
    return [Device(ordinal, _library.stats(ordinal), _library.largest_free(ordinal))
            for ordinal in _library.devices()]


def gather() -> list[Device]:
    """Every device in use."""
    found = totals()
    segments = _library.snapshot()["segments"] if found else []
    for device in found:
        device.segments = [one for one in segments if one["device"] == device.ordinal]
        device.accounts = accounts(device.ordinal)
    return found


def accounts(ordinal: int) -> list[Account]:
    """What each pool, scale and stream of a device has: the most memory first."""
    found = [
        Account(
            name_of(pool_of(one), "small" if one.is_small else "large", one.stream),
            one.active_bytes.current, one.active_bytes.peak, one.allocated_bytes,
            one.free_bytes, one.largest_free_bytes)
        for one in _library.pool_stream_stats(ordinal)]
    return sorted(found, key=lambda account: (-account.reserved, -account.peak))


def pool_of(one: _library.PoolStreamStats) -> str:
    """The pool of an account, in words."""
    if one.is_growing:
        return "reserved to grow"
    return "released pool" if one.is_released else pool_name(one.id0, one.id1)


def pool_name(id0: int, id1: int) -> str:
    """A pool in words."""
    return f"pool {id0}.{id1}" if id0 or id1 else "default pool"


def name_of(pool: str, scale: str, stream: int) -> str:
    """A pool, scale and stream in words."""
    handle = "default stream" if stream in (0, 1) else f"stream {stream:#x}"
    return f"{pool}, {scale}, {handle}"


def place_of(segment: Tree) -> str:
    """The pool, scale and stream of a segment, in words."""
    pool = pool_name(*segment["segment_pool_id"])
    return name_of(pool, segment["segment_type"], segment["stream"])


def sizes(segments: list[Tree], most: int) -> list[tuple[int, int]]:
    """The requested sizes of live blocks that hold most: size, and how many."""
    counts: dict[int, int] = defaultdict(int)
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == LIVE:
                counts[block["requested_size"]] += 1
    ordered = sorted(counts.items(), key=lambda item: -item[0] * item[1])
    return ordered[:most]


def text_of_bytes(count: float) -> str:
    """Bytes in binary units, to three digits or more."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f} B"


def text_of_count(count: int) -> str:
    """Groups of three, as the command writes them."""
    return f"{count:,}".replace(",", " ")
