"""What a report tells: the document that its text and its page are made of.

Its form is the page's own, and told beside it: `crates/tools/cli/src/report/html/README.md`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from . import _available, _figures, _replay, _room
from ._figures import Device, Tree, text_of_bytes, text_of_count
from ._holders import holders

GAUGES = ("requested", "allocated", "active", "reserved")
# How many of the largest are told.
SIZES_MAX, HOLDERS_MAX, ACCOUNTS_MAX = 5, 10, 20
NO_STACKS = "not known: history, with its stacks, is not being recorded"
NOTHING_SINCE = "not known: nothing was allocated or freed since the recording of history began"
# States of blocks, as the page numbers them; all else is pending.
PENDING, STATES = 1, {_figures.LIVE: 0, _figures.FREE: 2}


def take(
    recording: str | os.PathLike[str] | None, batch: int | None, version: str,
) -> Tree:
    """The state at this moment, as a version of this package tells it."""
    how = _figures.route()
    devices = _figures.gather()
    recorded = _replay.history()
    sections = [_device(device) for device in devices]
    sections = sections or [_section("No device is in use yet.", [])]
    replayed = _replay.replay(recorded, recording)
    room = [{"text": _room.conclusion(device, replayed, batch)} for device in devices]
    live = _holders("", holders(recorded["segments"])) if recorded else [
        {"text": NOTHING_SINCE if _replay.is_recording() else NO_STACKS}]
    return {
        "subtitle": "memory of a process",
        "note": (f"Drystone {version}, {how}, process {os.getpid()}, "
                 f"{time.strftime('%Y-%m-%d %H:%M:%S')}"),
        "traces": [],
        "sections": [
            *sections,
            _section("PyTorch's own allocators, given the same requests", _replayed(replayed)),
            _section("Who holds live blocks", live),
            *([_section("What there is room for", room)] if room else [])],
    }


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
        f"with room to spare {choices(stats['with_room'])}",
        f"without {choices(stats['under_pressure'])}",
        f"{text_of_count(stats['device_looks'])} questions to the device about what is free",
    ]
    if stats["beside_live_bytes"]:
        found.append(f"{text_of_bytes(stats['beside_live_bytes'])} unused beside live blocks")
    if stats["on_host_bytes"]:
        found.append(f"{text_of_bytes(stats['on_host_bytes'])} in the host's memory for now")
    if stats["moves"]:
        found.append(f"{text_of_bytes(stats['moved_bytes'])} moved together "
                     f"in {text_of_count(stats['moves'])} moves")
    if stats["pinned_bytes"]:
        found.append(f"{text_of_bytes(stats['pinned_bytes'])} pinned")
    for call, of in stats["registered"].items():
        found.append(f"{text_of_bytes(of['bytes'])} kept in place by {call}, "
                     f"{text_of_count(of['ranges'])} ranges")
    for call, of in stats["shared"].items():
        found.append(f"{text_of_bytes(of['bytes'])} known to others by {call}, which do not move "
                     f"while they are live, {text_of_count(of['handles'])} handles")
    if stats["quarantined_bytes"]:
        found.append(f"{text_of_bytes(stats['quarantined_bytes'])} quarantined")
    found += _available.host(stats)
    found += _available.others(stats)
    found += _available.exchanges(stats)
    return found


def choices(made: dict[str, int]) -> str:
    """How misses were answered."""
    return ", ".join(f"{text_of_count(made[name])} {name}" for name in ("growths", "remaps", "waits"))


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


def tag_rows(device: Device) -> list[Sequence[str]]:
    """What the program said memory is for."""
    tags = device.stats["tags"]
    ordered = sorted(tags.items(), key=lambda item: -item[1]["current"])
    rest = device.now("allocated_bytes") - sum(held["current"] for held in tags.values())
    return [
        *((name, text_of_bytes(held["current"]), text_of_bytes(held["peak"]))
          for name, held in ordered),
        ("no tag", text_of_bytes(max(rest, 0)), "")]


def size_rows(device: Device) -> list[Sequence[str]]:
    """The sizes that live blocks of a device have."""
    return [(text_of_bytes(size), text_of_count(count), text_of_bytes(size * count))
            for size, count in _figures.sizes(device.segments, SIZES_MAX)]


def held_rows(replayed: _replay.Replayed) -> list[Sequence[str]]:
    """What each allocator held."""
    return [(held.name, text_of_bytes(held.reserved), f"{held.per_requested:.4f}",
             text_of_count(held.driver_calls), text_of_count(held.refused))
            for held in replayed.held]


def layout(segments: list[Tree]) -> Tree:
    """The address map."""
    def block(one: Tree) -> list[int]:
        state = STATES.get(one["state"], PENDING)
        requested = 0 if one["state"] == _figures.FREE else one["requested_size"]
        return [one["size"], state, requested, 1]
    return {"segments": [
        [one["address"], one["total_size"], [block(each) for each in one["blocks"]],
         _figures.place_of(one)]
        for one in sorted(segments, key=lambda one: one["address"])]}


def shares(device: Device) -> list[Tree]:
    """The device's memory, by what it is used for."""
    parts = {kind: sum(getattr(account, kind) for account in device.accounts)
             for kind in ("live", "pending", "free")}
    parts["idle"] = device.idle
    parts["rest"] = max(device.stats["device_bytes"] - sum(parts.values()), 0)
    names = {"idle": "idle granules", "rest": "not Drystone's"}
    return [{"kind": kind, "name": names.get(kind, kind), "bytes": size}
            for kind, size in parts.items()]


def _section(title: str, parts: list[Tree]) -> Tree:
    return {"title": title, "parts": parts}


def _table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], words: Sequence[int] = (0,),
) -> Tree:
    return {"title": title, "table": {"heads": heads, "rows": list(rows), "words": words}}


def _device(device: Device) -> Tree:
    parts = [
        {"bar": shares(device)},
        _table("Now and at most", ("", "now", "peak", "small", "peak", "large", "peak"),
               gauges(device)),
        {"text": ", ".join(facts(device))},
        _table("Pools and streams",
               ("pool, scale, stream", "reserved", "in use", "peak", "pending", "free",
                "largest free"), account_rows(device))]
    left = len(device.accounts) - ACCOUNTS_MAX
    if left > 0:
        parts.append({"text": f"and {left} more"})
    if device.stats["tags"]:
        parts.append(_table("Tags", ("tag", "live", "peak"), tag_rows(device)))
    parts += [
        _table("Sizes that hold most", ("size of live blocks", "blocks", "together"),
               size_rows(device)),
        {"title": "Segments", "map": layout(device.segments)}]
    return _section(f"GPU {device.ordinal}: {headline(device)}", parts)


def _replayed(replayed: list[_replay.Replayed] | str) -> list[Tree]:
    if isinstance(replayed, str):
        return [{"text": replayed}]
    parts = []
    for one in replayed:
        parts.append(_table(
            f"{one.name}: peak requested {text_of_bytes(one.requested)}",
            ("allocator", "peak reserved", "per requested", "driver calls", "refused"),
            held_rows(one)))
        if one.peaks:
            rows = [(peak.name, text_of_bytes(peak.requested), text_of_count(peak.allocations))
                    for peak in one.peaks]
            parts.append(_table("", ("part", "peak requested", "allocations"), rows))
        if one.holders:
            parts += _holders("At the peak of this recording", one.holders)
    return parts


def _holders(title: str, found: list[_replay.Holder]) -> list[Tree]:
    rows = [(text_of_bytes(one.held), text_of_count(one.blocks), one.name)
            for one in found[:HOLDERS_MAX]]
    parts = [_table(title, ("held", "blocks", "place"), rows, words=(2,))]
    rest = found[HOLDERS_MAX:]
    if rest:
        held = text_of_bytes(sum(holder.held for holder in rest))
        parts.append({"text": f"{held} at {len(rest)} other places"})
    return parts
