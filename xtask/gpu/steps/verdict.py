"""What a run came to, in words: for a reader who has the last lines and nothing else.

Invariant: every step of the plan is in exactly one of the lists, whatever became of it.
"""

from __future__ import annotations

import itertools
import textwrap

from plan import GROUPS, Step

#: Why a step was ended, and why one is missing that time did not reach, or cut short.
LATE, NO_TIME = "took too long", "no time was left"
#: What PyTorch's steps say where it cannot be imported.
NO_TORCH = "no PyTorch"
WIDTH = 110


def rows_of(step: dict[str, object]) -> list[dict[str, object]]:
    data = step.get("data")
    return [row for row in (data if isinstance(data, list) else [data]) if isinstance(row, dict)]


def against(native: list[str] | None, losses: list[str] | None) -> str:
    """As far as both go: a step that was refused leaves other weights to those after it."""
    if not (native and losses):
        return "unknown"
    both = list(itertools.takewhile(lambda pair: "refused" not in pair, zip(losses, native)))
    if any(one != other for one, other in both):
        return "differ"
    return "same" if len(both) == len(native) else f"same, {len(both)} steps"


def compared(steps: list[dict[str, object]]) -> list[dict[str, object]]:
    """PyTorch's steps side by side; losses must be those of the native allocator, bit for bit."""
    trained = [(str(step["name"]), row) for step in steps for row in rows_of(step)
               if str(step["name"]).startswith(("train-", "tight-"))]

    def case(row: dict[str, object]) -> tuple[object, object]:
        return row.get("room"), row.get("others")

    native = {case(row): row.get("losses") for _, row in trained if row.get("route") == "native"}
    rows = []
    for name, row in trained:
        same = against(native.get(case(row)), row.get("losses"))
        if "Simulated" in str(row.get("device")):
            same = "computed nothing"
        rows.append({"step": name, "route": row["route"], "losses": same,
                     **{key: value for key, value in row.items()
                        if key not in ("route", "losses", "PyTorch", "device")}})
    return rows


def figure(rows: list[dict[str, object]], key: str) -> str | None:
    """A figure over all rows that have it: one value, or the least and the largest."""
    values = [row[key] for row in rows if key in row and row[key] is not None]
    if not values:
        return None
    if all(isinstance(value, (int, float)) for value in values) and min(values) != max(values):
        return f"{key} {min(values)} to {max(values)}"
    return f"{key} {', '.join(dict.fromkeys(str(value)[:60] for value in values))}"


def figures(plan: Step, step: dict[str, object]) -> str:
    if len(plan.shows) == 2 and plan.shows[0] == "limit":
        # Each row is a limit of its own.
        shown = [f"{row['limit']} {row['reached']}{'' if row['refused'] else ' or more'}"
                 for row in rows_of(step) if "reached" in row]
    else:
        shown = [figure(rows_of(step), key) for key in plan.shows]
    return "; ".join(filter(None, shown))


def last_words(step: dict[str, object]) -> str:
    """Of a step that failed: what its rows call a failure, or the last that it said."""
    for row in rows_of(step):
        for value in row.values():
            if str(value).startswith("failed"):
                return str(value)[:300]
    said = [str(row["said"]) for row in rows_of(step) if row.get("said")]
    lines = [line for line in str(step.get("errors", "")).splitlines() if line.strip()]
    return (said or lines[-1:] or [""])[0][:300]


def judged(plan: Step, step: dict[str, object] | None,
           losses: list[str]) -> tuple[str, str]:
    """The list that a step belongs to, and what is said of it there."""
    if step is None or step["why"] == NO_TIME:
        cut = f" It was cut off after {step['seconds']} s." if step and step["seconds"] else ""
        return "NOT REACHED", cut.strip()
    shown = figures(plan, step)
    if step["status"] == "skipped":
        return "NOT ASKED", str(step["why"])
    if step["status"] == "failed":
        return "DID NOT HOLD", "; ".join(
            filter(None, [str(step["why"]), last_words(step), shown]))
    if "differ" in losses:
        return "DID NOT HOLD", f"the losses differ from the native allocator's; {shown}"
    if "unknown" in losses and "bit for bit" in plan.claim:
        return "NOT ASKED", f"it ran, with nothing to compare the losses with; {shown}"
    is_idle = "computed nothing" in losses or any(
        row.get("computed") is False or "computed nothing" in row.values()
        for row in rows_of(step))
    return ("NOT ASKED", f"it ran on a device that computes nothing; {shown}") if is_idle else (
        "HELD", shown)


def device_of(results: dict[str, object]) -> str:
    """As the driver calls it; as the command of NVIDIA's does, or why it does not."""
    rows = [row for step in results["steps"] for row in rows_of(step)]
    names = [str(row["device"]) for row in rows if row.get("device")]
    return (names or [str(results["of"]["devices"])])[0]


def verdict(results: dict[str, object], chosen: list[Step], minutes: float) -> list[str]:
    """The last lines of a run."""
    steps = {str(one["name"]): one for one in results["steps"]}
    by_step: dict[str, list[str]] = {}
    for row in results["compared"]:
        by_step.setdefault(str(row["step"]), []).append(str(row["losses"]))
    lists: dict[str, list[str]] = {
        "HELD": [], "DID NOT HOLD": [], "NOT ASKED": [], "NOT REACHED": []}
    left = 0.0
    for group, plans in GROUPS.items():
        for plan in plans:
            if plan not in chosen and plan.name not in steps:
                continue
            where, said = judged(plan, steps.get(plan.name), by_step.get(plan.name, []))
            left += plan.seconds if where == "NOT REACHED" else 0
            text = f"{plan.name} ({group}): {plan.claim}{f' [{said}]' if said else ''}"
            lists[where] += textwrap.wrap(text, WIDTH, initial_indent="  ",
                                          subsequent_indent="      ", break_on_hyphens=False)
    told = {
        "HELD": "HELD: these sentences are true of this device.",
        "DID NOT HOLD": "DID NOT HOLD: these are not, or their steps broke off; why follows each.",
        "NOT ASKED": "NOT ASKED: something was missing for these.",
        "NOT REACHED": f"NOT REACHED: time ended before these, which take about {left / 60:.0f} "
                       f"minutes. `./run --minutes {minutes:g}` goes on with them.",
    }
    return [line for where, lines in lists.items() if lines for line in (told[where], *lines)]
