"""The results as one page that needs nothing else: a table of steps, and what each came to."""

from __future__ import annotations

from html import escape

STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em }
table { border-collapse: collapse; margin: .5em 0 }
td, th { border: 1px solid #ccc; padding: .15em .5em; text-align: left; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
pre { background: #f4f4f4; padding: .5em; overflow: auto; max-height: 30em }
.passed { color: #060 } .failed { color: #a00; font-weight: bold } .skipped { color: #666 }
"""


def cell(value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f'<td{" class=number" if is_number else ""}>{escape(text)}</td>'


def table(rows: list[dict[str, object]]) -> str:
    """Rows of like keys are one table; where the keys change, another begins."""
    parts, keys = [], None
    for row in rows:
        if list(row) != keys:
            keys = list(row)
            head = "".join(f"<th>{escape(key)}</th>" for key in keys)
            parts.append(f"{'</table>' if parts else ''}<table><tr>{head}</tr>")
        parts.append(f"<tr>{''.join(cell(value) for value in row.values())}</tr>")
    return "".join(parts) + "</table>" if parts else ""


def shown(data: object) -> str:
    if isinstance(data, list) and all(isinstance(one, dict) for one in data):
        return table(data)
    if isinstance(data, dict):
        return table([{"what": key, "is": value} for key, value in data.items()])
    return ""


def folded(title: str, text: str) -> str:
    if not text.strip():
        return ""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def section(step: dict[str, object]) -> str:
    name, status = escape(str(step["name"])), escape(str(step["status"]))
    return (
        f'<h2 id="{name}">{name}: <span class={status}>{status}</span> '
        f'{escape(str(step["why"]))}</h2>{shown(step.get("data"))}'
        f'{folded("what it printed", str(step.get("output", "")))}'
        f'{folded("what it complained", str(step.get("errors", "")))}')


def page(results: dict[str, object]) -> str:
    """The whole page."""
    steps = results["steps"]
    overview = "".join(
        f'<tr><td><a href="#{escape(one["name"])}">{escape(one["name"])}</a></td>'
        f'<td class={escape(one["status"])}>{escape(one["status"])}</td>'
        f'{cell(one["seconds"])}{cell(one["why"])}</tr>' for one in steps)
    machine = "".join(folded(key, text) for key, text in results["machine"].items())
    compared = results["compared"]
    return (
        f"<!doctype html><meta charset=utf-8><title>Drystone on a GPU</title>"
        f"<style>{STYLE}</style><h1>Drystone on a GPU</h1><p>{escape(results['began'])}</p>"
        f"<pre>{escape(chr(10).join(results['verdict']))}</pre>"
        f"<table><tr><th>step</th><th>came to</th><th>s</th><th>why</th></tr>{overview}</table>"
        f"<h2>Machine</h2>{machine}"
        f"{'<h2>PyTorch, side by side</h2>' + table(compared) if compared else ''}"
        f"{''.join(map(section, steps))}")
