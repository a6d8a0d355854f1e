"""What a dry run tells: tables as text, one HTML page, or JSON.

Lives here: which figures are told. `_render` writes them. Invariant: what is not known is a range,
and the verdict is that of its worst end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import __version__, _gpus, _notebook
from ._beside import OTHERS, beside
from ._dry_run import Outcome, Rank
from ._gpus import Gpu, Range
from ._recording import KINDS, Course, Phase
from ._render import Table, bytes_text, range_text

SCHEMA = 1
HOLDERS = 12
PLACES = 6


@dataclass
class Verdict:
    """Whether a rank fits with one allocator, and the bytes left at the worst."""

    text: str
    margin: int | None


def verdict(gpu: Gpu, rank: Rank, at: int) -> Verdict:
    """Of the allocator at that place among those replayed."""
    held = rank.replayed.held[at]
    left = room(gpu, rank)
    if held.refused == 0:
        text = "perhaps" if rank.is_open else "yes"
        return Verdict(text, left.low - (held.smallest or held.reserved))
    if held.smallest is not None and held.smallest <= left.high:
        return Verdict("perhaps", left.low - held.smallest)
    return Verdict("no", None if held.smallest is None else left.low - held.smallest)


def room(gpu: Gpu, rank: Rank) -> Range:
    """What of the device is left to the allocator."""
    besides = rank.beside.values()
    return Range(gpu.cuda.low - sum(one.high for one in besides),
                 gpu.cuda.high - sum(one.low for one in besides))


def smallest_gpu(asked: Gpu, rank: Rank, needed: int) -> str:
    """The least of the table's GPUs that certainly has so many bytes for the allocator: of those
    that this PyTorch has code for, and of the kind that was asked for.
    """
    if OTHERS in rank.beside:
        needed += rank.beside[OTHERS].high
    oldest = min(rank.process.told["architectures"], default=0)
    for gpu in _gpus.table():
        if gpu.is_shared != asked.is_shared or gpu.architecture < oldest:
            continue
        besides = beside(gpu, rank.process.told["calls"], rank.process.told["searches"])
        if gpu.cuda.low - sum(one.high for one in besides.values()) >= needed:
            return gpu.name
    return "none of the table"


def tables(outcome: Outcome) -> list[Table]:
    """The report."""
    rank = outcome.worst
    found = [_verdicts(outcome, rank)]
    if len(outcome.ranks) > 1:
        found.append(_ranks(outcome))
    found += [_device(outcome.request.gpu, rank), _kinds(rank.course), _holders(rank.course),
              _phases(rank.course)]
    if outcome.other is not None or rank.is_open:
        found.append(_sizes(outcome, rank))
    if rank.process.told["values"]:
        found.append(_values(outcome, rank))
    return found


def title(outcome: Outcome) -> str:
    """The first lines."""
    rank, gpu = outcome.worst, outcome.request.gpu
    told = rank.process.told
    which = f"rank {rank.rank}, " if len(outcome.ranks) > 1 else ""
    ended = f"; the program ended with code {outcome.code}" if outcome.code else ""
    command = (part for part in outcome.request.command[1:] if part != _notebook.__file__)
    return (f"{' '.join(command)}\non {gpu.model}, simulated: no kernel ran. "
            f"{which}{told['steps']} steps, {rank.course.requests:,} requests, PyTorch "
            f"{told['torch']}, {outcome.run_s:.1f} s{ended}")


def _verdicts(outcome: Outcome, rank: Rank) -> Table:
    rows = []
    for at, held in enumerate(rank.replayed.held):
        found = verdict(outcome.request.gpu, rank, at)
        margin = "" if found.margin is None else bytes_text(found.margin)
        smallest = "" if held.smallest is None else bytes_text(held.smallest)
        gpu = ("" if held.smallest is None
               else smallest_gpu(outcome.request.gpu, rank, held.smallest))
        rows.append([held.name, found.text, margin, bytes_text(held.allocated),
                     bytes_text(held.reserved), smallest, gpu])
    note = (f"Peak requested: {bytes_text(rank.replayed.requested)}, "
            f"{_phase_text(rank.course.peak_phase)}. Margin: what is left on the device beyond "
            "the least that the allocator can do with.")
    if outcome.request.is_limited:
        note += " Memory ended where the device's does."
    elif any(held.refused for held in rank.replayed.held):
        note += (" A program that catches out of memory, and goes on with less, met none: "
                 "--limited lets memory end.")
    return Table("Does it fit?", ["allocator", "fits", "margin", "allocated", "reserved",
                                  "can do with", "smallest GPU"], rows, note)


def _ranks(outcome: Outcome) -> Table:
    rows = [[str(rank.rank), rank.place, bytes_text(rank.course.peak),
             *(bytes_text(held.reserved) for held in rank.replayed.held),
             _phase_text(rank.course.peak_phase)] for rank in outcome.ranks]
    peaks = [rank.course.peak for rank in outcome.ranks]
    names = [held.name for held in outcome.worst.replayed.held]
    return Table("Ranks", ["rank", "device", "requested", *names, "peak"], rows,
                 f"The highest peak is {max(peaks) / max(min(peaks), 1):.2f} times the lowest.")


def _device(gpu: Gpu, rank: Rank) -> Table:
    rows = [["memory, as NVML tells it", bytes_text(gpu.nvml) if gpu.nvml else "not published"],
            ["memory, as CUDA tells it", range_text(gpu.cuda)]]
    rows += [[f"- {name}", range_text(one)] for name, one in rank.beside.items()]
    rows.append(["left to the allocator", range_text(room(gpu, rank))])
    notes = [f"Source: {gpu.source}"] if gpu.source else []
    if searches(rank):
        told = rank.process.told["calls"]["engine_bytes"]
        most = f"holds up to {bytes_text(told)} more" if told else "may fill what is left"
        notes.append("torch.backends.cudnn.benchmark is on: while PyTorch searches for engines it "
                     f"{most}, and gives it back; that is not counted as needed.")
    return Table("The device", ["", "bytes"], rows, "\n".join(notes))


def searches(rank: Rank) -> bool:
    """Whether convolutions try every engine, some of which ask for more than any rule says."""
    told = rank.process.told
    return bool(told["searches"] and max(told["calls"]["convolution_bytes"]))


def _kinds(course: Course) -> Table:
    rows = [[kind, bytes_text(course.kinds[kind]), f"{course.kinds[kind] / course.peak:.1%}"]
            for kind in KINDS if course.kinds.get(kind)]
    return Table("Who holds the peak, by kind", ["kind", "bytes", "share"], rows)


def _holders(course: Course) -> Table:
    rows = [[kind, layer, place, bytes_text(bytes), f"{blocks:,}"]
            for kind, layer, place, bytes, blocks in course.holders[:HOLDERS]]
    return Table("Who holds the peak, by layer and line", ["kind", "layer", "line", "bytes",
                                                           "blocks"], rows)


def _phases(course: Course) -> Table:
    """The last whole step: of the first ones some have no optimizer state yet."""
    last = max((phase.step for phase in course.phases if phase.name == "update"),
               default=course.phases[-1].step)
    rows = [[phase.name, bytes_text(phase.peak), phase.peak / course.peak]
            for phase in course.phases if phase.step == last]
    return Table(f"Phases of step {last + 1}", ["phase", "peak requested", "of the peak"], rows)


def _sizes(outcome: Outcome, rank: Rank) -> Table:
    """What the choice of sizes that depend on values changes."""
    found = [one.worst for one in (outcome.other, outcome) if one is not None]
    rows = [[bytes_text(one.course.peak), *(bytes_text(held.reserved)
                                            for held in one.replayed.held)] for one in found]
    names = [held.name for held in rank.replayed.held]
    notes = ["Some sizes depend on values (`nonzero`, masks, `unique`): with the least and the "
             "most of each that there can be. All above is of what needs more."]
    if rank.is_open:
        notes = [f"Some sizes depend on values, and the most is not known: {_why_open(outcome)}."]
    return Table("Sizes that depend on values", ["peak requested", *names], rows, " ".join(notes))


def _why_open(outcome: Outcome) -> str:
    return outcome.no_most or "`repeat_interleave` makes as many as its values say"


def _values(outcome: Outcome, rank: Rank) -> Table:
    rows = [[name, place, f"{times:,}"] for name, place, times in rank.process.told["values"]]
    return Table("Values read back", ["what", "where", "times"], rows[:PLACES],
                 f"No kernel made them: they were taken as {outcome.request.values}. A way that "
                 "the program takes by one of them may be another on a GPU (--values). "
                 "`mem_get_info` leaves out the largest context that there may be.")


def _phase_text(phase: Phase | None) -> str:
    return "" if phase is None else f"in step {phase.step + 1}, {phase.name}"


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The report with every figure in bytes."""
    gpu = outcome.request.gpu
    return {
        "schema": SCHEMA, "drystone_sim": __version__, "program": outcome.request.command[1:],
        "exit_code": outcome.code, "run_s": round(outcome.run_s, 3),
        "values": outcome.request.values, "sizes": _sizes_json(outcome),
        "gpu": {"name": gpu.name, "model": gpu.model, "nvml_bytes": gpu.nvml,
                "cuda_bytes": [gpu.cuda.low, gpu.cuda.high], "source": gpu.source},
        "ranks": [_rank_json(gpu, rank) for rank in outcome.ranks],
    }


def _sizes_json(outcome: Outcome) -> dict[str, Any] | None:
    """The bounds of the peak, where sizes depend on values; the upper one only if it is known."""
    is_open = outcome.worst.is_open
    if outcome.other is None and not is_open:
        return None
    peaks = [one.worst.course.peak for one in (outcome.other, outcome) if one is not None]
    return {"peak_requested_bytes": [min(peaks), None if is_open else max(peaks)],
            "why_open": _why_open(outcome) if is_open else None}


def _rank_json(gpu: Gpu, rank: Rank) -> dict[str, Any]:
    course, told, left = rank.course, rank.process.told, room(gpu, rank)
    return {
        "rank": rank.rank, "device": course.device, "torch": told["torch"], "steps": told["steps"],
        "requests": course.requests, "peak_requested_bytes": rank.replayed.requested,
        "pytorch": {"peak_allocated_bytes": told["allocated"],
                    "peak_reserved_bytes": told["reserved"]},
        "searches_engines": searches(rank), "engine_bytes": told["calls"]["engine_bytes"],
        "peak_phase": _phase_text(course.peak_phase), "left_bytes": [left.low, left.high],
        "beside_bytes": {name: [one.low, one.high] for name, one in rank.beside.items()},
        "allocators": [_held_json(gpu, rank, at) for at in range(len(rank.replayed.held))],
        "kinds_bytes": course.kinds,
        "holders": [dict(zip(("kind", "layer", "line", "bytes", "blocks"), one, strict=True))
                    for one in course.holders],
        "phases": [{"phase": phase.name, "step": phase.step, "peak_requested_bytes": phase.peak}
                   for phase in course.phases],
        "values_read": [{"what": what, "where": where, "times": times}
                        for what, where, times in told["values"]],
    }


def _held_json(gpu: Gpu, rank: Rank, at: int) -> dict[str, Any]:
    held, found = rank.replayed.held[at], verdict(gpu, rank, at)
    return {"allocator": held.name, "fits": found.text, "margin_bytes": found.margin,
            "peak_allocated_bytes": held.allocated, "peak_reserved_bytes": held.reserved,
            "smallest_bytes": held.smallest, "out_of_memory_events": held.refused}
