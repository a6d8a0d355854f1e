"""The report as one page that needs nothing else: no network, no script.

Lives here: looks. What is told is `_report`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from . import _figures, _report
from ._figures import Device, text_of_bytes
from ._replay import Holder, Replayed

# Segments that are drawn, the largest first, and the width of the drawing.
SEGMENTS_MAX, WIDTH, ROW = 48, 1000.0, 14
# Blocks narrower than this are drawn together with their neighbours.
NARROWEST = 0.5

STYLE = """
:root { color-scheme: light dark;
  --paper: #f6f5f2; --card: #fff; --ink: #23252a; --soft: #6b6f76; --line: #dfddd7;
  --live: #00796b; --pending: #e3b341; --free: #e8b4a8; --idle: #b9b3a6; --rest: #ecebe6; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #16181c; --card: #1e2126; --ink: #e6e6e3; --soft: #9a9fa8; --line: #33373e;
  --live: #2fb8a3; --pending: #c79a2d; --free: #8c4a3c; --idle: #5d6873; --rest: #26292f; } }
body { background: var(--paper); color: var(--ink); margin: 2rem auto; max-width: 66rem;
  padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  margin: 1rem 0; padding: 1rem 1.4rem; overflow-x: auto; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin: 0 0 .5rem; }
h3 { font-size: .95rem; margin: 1.3rem 0 .3rem; }
p, .soft { color: var(--soft); margin: .4rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .15rem .9rem .15rem 0; text-align: right; white-space: nowrap; }
td:first-child, th:first-child, table.last td:last-child, table.last th:last-child
  { text-align: left; }
th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }
.bar { display: flex; height: 1.5rem; border-radius: 4px; overflow: hidden; background: var(--rest); }
.key i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin: 0 .3em 0 1em; }
.live { background: var(--live); fill: var(--live); }
.pending { background: var(--pending); fill: var(--pending); }
.free { background: var(--free); fill: var(--free); }
.idle { background: var(--idle); fill: var(--idle); }
.rest { background: var(--rest); fill: var(--rest); }
svg { width: 100%; height: auto; }
"""


def page(picture: _report.Picture) -> str:
    """The whole page."""
    devices = "".join(_device(device) for device in picture.devices)
    devices = devices or "<section>No device is in use yet.</section>"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Drystone report</title>'
        f"<style>{STYLE}</style></head><body><h1>Drystone report</h1>"
        f"<p>{escape(picture.heading)}</p>{devices}"
        f"<section><h2>PyTorch's own allocators, given the same requests</h2>"
        f"{_replayed(picture.replayed)}</section>"
        f"<section><h2>Who holds live blocks</h2>{_holders(picture.holders)}</section>"
        "</body></html>\n")


def _device(device: Device) -> str:
    return (
        f"<section><h2>GPU {device.ordinal}: {escape(_report.headline(device))}</h2>"
        f"{_bar(device)}<p>{escape(', '.join(_report.facts(device)))}</p>"
        f"<h3>Now and at most</h3>{_table(_report.GAUGE_TITLES, _report.gauges(device))}"
        f"<h3>Pools and streams</h3>{_table(_report.ACCOUNT_TITLES, _report.account_rows(device))}"
        f"<h3>Sizes that hold most</h3>{_table(_report.SIZE_TITLES, _report.size_rows(device))}"
        f"<h3>Segments</h3>{_segments(device)}</section>")


def _bar(device: Device) -> str:
    """The device's memory in one line, with its key."""
    total = device.stats["device_bytes"]
    parts = {kind: sum(getattr(account, kind) for account in device.accounts)
             for kind in ("live", "pending", "free")}
    parts["idle"] = device.idle
    parts["rest"] = max(total - sum(parts.values()), 0)
    words = {"idle": "idle granules", "rest": "not Drystone's"}
    bar = "".join(
        f'<span class="{kind}" style="width:{size / total:.3%}"></span>'
        for kind, size in parts.items()) if total else ""
    key = "".join(
        f'<i class="{kind}"></i>{words.get(kind, kind)} {text_of_bytes(size)}'
        for kind, size in parts.items())
    return f'<div class="bar">{bar}</div><p class="key">{key}</p>'


def _segments(device: Device) -> str:
    """The largest segments, each a line with its blocks."""
    segments = sorted(device.segments, key=lambda one: -one["total_size"])
    drawn = segments[:SEGMENTS_MAX]
    if not drawn:
        return "<p>none</p>"
    scale = WIDTH / drawn[0]["total_size"]
    rows = []
    for at, segment in enumerate(drawn):
        title = (f"{_figures.place_of(segment)}: {text_of_bytes(segment['total_size'])} "
                 f"at {segment['address']:#x}")
        runs = "".join(
            f'<rect class="{kind}" x="{x:.2f}" y="{at * ROW}" width="{width:.2f}" '
            f'height="{ROW - 3}"/>' for kind, x, width in _runs(segment, scale))
        rows.append(f"<g><title>{escape(title)}</title>{runs}</g>")
    left = len(segments) - len(drawn)
    more = f"<p>and {left} smaller ones</p>" if left else ""
    return (f'<svg viewBox="0 0 {WIDTH:.0f} {len(drawn) * ROW}" role="img" '
            f'aria-label="segments and their blocks">{"".join(rows)}</svg>{more}')


def _runs(segment: dict, scale: float) -> Iterable[tuple[str, float, float]]:
    """Blocks as rectangles: kind, place and width. Neighbours of one kind are one."""
    kind, start, end = "", 0.0, 0.0
    for block in segment["blocks"]:
        state = block["state"]
        new = {_figures.LIVE: "live", _figures.FREE: "free"}.get(state, "pending")
        width = block["size"] * scale
        if kind and (new == kind or width < NARROWEST):
            end += width
            continue
        if kind:
            yield kind, start, end - start
        kind, start = new, end
        end += width
    if kind:
        yield kind, start, end - start


def _replayed(replayed: list[Replayed] | str) -> str:
    if isinstance(replayed, str):
        return f"<p>{escape(replayed)}</p>"
    parts = []
    for one in replayed:
        parts.append(
            f"<h3>{escape(one.name)}: peak requested {text_of_bytes(one.requested)}</h3>"
            + _table(_report.HELD_TITLES, _report.held_rows(one)))
        if one.peaks:
            rows = [(peak.name, text_of_bytes(peak.requested), str(peak.allocations))
                    for peak in one.peaks]
            parts.append(_table(_report.PEAK_TITLES, rows))
        if one.holders:
            parts.append("<h3>At the peak of this recording</h3>" + _holders(one.holders))
    return "".join(parts)


def _holders(holders: list[Holder] | str) -> str:
    if isinstance(holders, str):
        return f"<p>{escape(holders)}</p>"
    rows = [(text_of_bytes(one.held), str(one.blocks), one.name)
            for one in holders[:_report.HOLDERS_MAX]]
    return _table(_report.HOLDER_TITLES, rows, "last")


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
    return (f'<table class="{kind}">{row(titles, "th")}'
            f'{"".join(row(cells, "td") for cells in rows)}</table>')
