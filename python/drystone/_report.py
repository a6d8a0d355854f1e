"""The report: what the devices hold, as text and as a page.

Lives here: the text, and putting the page in its place. Figures come from `_figures` and
`_replay`, the page's looks from `_page`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import __version__, _figures, _replay
from ._figures import Device, text_of_bytes, text_of_count
from ._write import write

GAUGES = ("requested", "allocated", "active", "reserved")
# How many of the largest are told.
SIZES_MAX, HOLDERS_MAX, ACCOUNTS_MAX = 5, 10, 20
NO_STACKS = "not known: history, with its stacks, is not being recorded"


@dataclass
class Picture:
    """All that is told."""

    heading: str
    devices: list[Device]
    replayed: list[_replay.Replayed] | str
    # Live blocks by stack, or why not.
    holders: list[_replay.Holder] | str


def report(html: str | os.PathLike[str] | None, recording: str | os.PathLike[str] | None) -> str:
    """See `drystone.report`."""
    picture = take(recording)
    if html is not None:
        from . import _page
        write(html, _page.page(picture))
    return text(picture)


def take(recording: str | os.PathLike[str] | None) -> Picture:
    """The state at this moment."""
    how = _figures.route()
    devices = _figures.gather()
    recorded = _replay.history()
    heading = (f"Drystone {__version__}, {how}, process {os.getpid()}, "
               f"{time.strftime('%Y-%m-%d %H:%M:%S')}")
    return Picture(
        heading, devices, _replay.replay(recorded, recording),
        holders(recorded["segments"]) if recorded else NO_STACKS)


def holders(segments: list[dict[str, Any]]) -> list[_replay.Holder]:
    """Live blocks by the place that allocated them, the most memory first."""
    found: dict[str, _replay.Holder] = {}
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] == _figures.LIVE:
                name = place_of(block.get("frames") or [])
                holder = found.setdefault(name, _replay.Holder(name, 0, 0))
                holder.held += block["requested_size"]
                holder.blocks += 1
    return sorted(found.values(), key=lambda holder: -holder.held)


def place_of(frames: list[dict[str, Any]]) -> str:
    """The innermost Python frame outside of PyTorch, else the innermost."""
    python = [frame for frame in frames if frame["filename"].endswith(".py")
              or frame["filename"].startswith("<")]
    outside = (frame for frame in python if "/torch/" not in frame["filename"])
    frame = next(outside, python[0] if python else None)
    if frame is None:
        return "no Python stack"
    return f"{frame['filename']}:{frame['line']} {frame['name']}"


def text(picture: Picture) -> str:
    """The report as text."""
    lines = [picture.heading]
    if not picture.devices:
        lines += ["", "No device is in use yet."]
    for device in picture.devices:
        lines += ["", *_device(device)]
    lines += ["", "PyTorch's own allocators, given the same requests", *_replayed(picture.replayed)]
    lines += ["", "Who holds live blocks", *_holders(picture.holders)]
    return "\n".join(lines) + "\n"


def headline(device: Device) -> str:
    """Reserved against used, in one sentence."""
    reserved, used = device.now("reserved_bytes"), device.now("active_bytes")
    share = f" ({used / reserved:.1%})" if reserved else ""
    return (f"{text_of_bytes(reserved)} reserved of {text_of_bytes(device.stats['device_bytes'])}, "
            f"{text_of_bytes(used)} in use{share}")


def facts(device: Device) -> list[str]:
    """What else is worth knowing of a device, a sentence each."""
    stats = device.stats
    found = [
        f"largest free block {text_of_bytes(device.largest_free)}",
        f"idle granules {text_of_bytes(device.idle)}",
        f"{text_of_count(stats['granule_remaps'])} granules remapped",
        f"{text_of_count(stats['remapped_granules'])} away from home now",
        f"{text_of_count(stats['aliases'])} aliases ({text_of_bytes(stats['alias_bytes'])})",
        f"{text_of_count(stats['cross_stream_reuses'])} blocks reused across streams",
        f"{text_of_count(stats['driver_calls'])} driver calls",
    ]
    if stats["pinned_bytes"]:
        found.append(f"{text_of_bytes(stats['pinned_bytes'])} pinned")
    if stats["quarantined_bytes"]:
        found.append(f"{text_of_bytes(stats['quarantined_bytes'])} quarantined")
    return found


def gauges(device: Device) -> list[Sequence[str]]:
    """Now and at most, of the whole device and by scale."""
    parts = (device.stats, device.stats["small"], device.stats["large"])
    return [
        (name, *(text_of_bytes(part[f"{name}_bytes"][when])
                 for part in parts for when in ("current", "peak")))
        for name in GAUGES]


def account_rows(device: Device) -> list[Sequence[str]]:
    """Pools and streams."""
    return [
        (account.name, *map(text_of_bytes, (
            account.reserved, account.active, account.peak, account.pending, account.free,
            account.largest_free)))
        for account in device.accounts[:ACCOUNTS_MAX]]


def size_rows(device: Device) -> list[Sequence[str]]:
    """The sizes that live blocks of a device have."""
    return [(text_of_bytes(size), text_of_count(count), text_of_bytes(size * count))
            for size, count in _figures.sizes(device.segments, SIZES_MAX)]


def held_rows(replayed: _replay.Replayed) -> list[Sequence[str]]:
    """What each allocator held."""
    return [(held.name, text_of_bytes(held.reserved), f"{held.per_requested:.4f}",
             text_of_count(held.driver_calls), text_of_count(held.refused))
            for held in replayed.held]


GAUGE_TITLES = ("", "now", "peak", "small", "peak", "large", "peak")
ACCOUNT_TITLES = (
    "pool, scale, stream", "reserved", "in use", "peak", "pending", "free", "largest free")
SIZE_TITLES = ("size of live blocks", "blocks", "together")
HELD_TITLES = ("allocator", "peak reserved", "per requested", "driver calls", "refused")
PEAK_TITLES = ("part", "peak requested", "allocations")
HOLDER_TITLES = ("held", "blocks", "place")


def _device(device: Device) -> Iterable[str]:
    yield f"GPU {device.ordinal}: {headline(device)}"
    yield from table(GAUGE_TITLES, gauges(device))
    yield ""
    yield from table(ACCOUNT_TITLES, account_rows(device))
    left = len(device.accounts) - ACCOUNTS_MAX
    if left > 0:
        yield f"  and {left} more"
    yield ""
    yield from table(SIZE_TITLES, size_rows(device))
    yield "  " + ", ".join(facts(device))


def _replayed(replayed: list[_replay.Replayed] | str) -> Iterable[str]:
    if isinstance(replayed, str):
        yield f"  {replayed}"
        return
    for one in replayed:
        yield f"  {one.name}: peak requested {text_of_bytes(one.requested)}"
        yield from table(HELD_TITLES, held_rows(one))
        if one.peaks:
            yield from table(PEAK_TITLES, [
                (peak.name, text_of_bytes(peak.requested), text_of_count(peak.allocations))
                for peak in one.peaks])
        if one.holders:
            yield "  at the peak of this recording"
            yield from _holders(one.holders)


def _holders(found: list[_replay.Holder] | str) -> Iterable[str]:
    if isinstance(found, str):
        yield f"  {found}"
        return
    for holder in found[:HOLDERS_MAX]:
        yield f"  {text_of_bytes(holder.held):>12}  {text_of_count(holder.blocks):>6}  {holder.name}"
    rest = found[HOLDERS_MAX:]
    if rest:
        held = text_of_bytes(sum(holder.held for holder in rest))
        yield f"  {held:>12}  at {len(rest)} other places"


def table(titles: Sequence[str], rows: list[Sequence[str]]) -> Iterable[str]:
    """Columns: the first to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        first, *others = (cell.ljust(width) if at == 0 else cell.rjust(width)
                          for at, (cell, width) in enumerate(zip(row, widths, strict=True)))
        yield "  " + "  ".join((first, *others))
