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
class Place:
    """The memory of one pool, scale and stream, in bytes."""

    name: str
    reserved: int = 0
    live: int = 0
    pending: int = 0
    free: int = 0
    largest_free: int = 0


@dataclass
class Device:
    """One device in use."""

    ordinal: int
    # As `drystone_stats_json` has them.
    stats: Tree
    largest_free: int
    places: list[Place] = field(default_factory=list)
    # As a snapshot has them.
    segments: list[Tree] = field(default_factory=list)

    def now(self, gauge: str) -> int:
        """A gauge's present value."""
        return self.stats[gauge]["current"]

    @property
    def idle(self) -> int:
        """Bytes held that back nothing: they serve whatever is asked for next."""
        return max(self.now("reserved_bytes") - sum(place.reserved for place in self.places), 0)


def route() -> str:
    """How Drystone came into this process; an error if it did not."""
    enabling = sys.modules.get("drystone._enable")
    if enabling is not None and enabling.is_enabled:
        return "PyTorch's allocator"
    if _library.preloaded():
        return "preloaded"
    raise DrystoneError(
        "drystone serves nothing in this process: call drystone.enable() before CUDA is used, or "
        "start the program by python -m drystone, or with libdrystone.so in LD_PRELOAD")


def totals() -> list[Device]:
    """Every device in use, without its pools and segments."""
    route()
    return [Device(ordinal, _library.stats(ordinal), _library.largest_free(ordinal))
            for ordinal in _library.devices()]


def gather() -> list[Device]:
    """Every device in use."""
    found = totals()
    segments = _library.snapshot()["segments"] if found else []
    for device in found:
        device.segments = [one for one in segments if one["device"] == device.ordinal]
        device.places = places(device.segments)
    return found


def places(segments: list[Tree]) -> list[Place]:
    """Segments summed up by pool, scale and stream: the most memory first."""
    found: dict[str, Place] = {}
    for segment in segments:
        name = place_of(segment)
        place = found.setdefault(name, Place(name))
        place.reserved += segment["total_size"]
        for block in segment["blocks"]:
            size = block["size"]
            if block["state"] == LIVE:
                place.live += size
            elif block["state"] == FREE:
                place.free += size
                place.largest_free = max(place.largest_free, size)
            else:
                place.pending += size
    return sorted(found.values(), key=lambda place: -place.reserved)


def place_of(segment: Tree) -> str:
    """The pool, scale and stream of a segment, in words."""
    pool = tuple(segment["segment_pool_id"])
    scale = segment["segment_type"]
    stream = segment["stream"]
    return ", ".join((
        "default pool" if pool == (0, 0) else f"pool {pool[0]}.{pool[1]}", scale,
        "default stream" if stream in (0, 1) else f"stream {stream:#x}"))


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
