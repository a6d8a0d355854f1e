"""The largest value of an option with which a program fits.

Memory grows with a batch nearly as a line does, so the line through two runs tells where to look,
and a run proves it: the answer was run and fits, the value after it was run and does not, unless it
is an end of the range. Invariant: what is told was run.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass

from . import _dry_run
from ._errors import SimError

PROBES_MAX = 24


@dataclass
class Option:
    """An option of the program, and the values that it may take."""

    name: str
    low: int
    high: int

    def given(self, request: _dry_run.Request, value: int) -> _dry_run.Request:
        """The same program with this value."""
        return request.changed([*request.command, f"--{self.name}", str(value)])


@dataclass
class Found:
    """The best value's run, and the answer in words."""

    outcome: _dry_run.Outcome
    text: str


def parse(text: str) -> Option:
    """`batch=1..4096`."""
    match = re.fullmatch(r"-*([A-Za-z][\w.-]*)=(\d+)\.\.(\d+)", text)
    if match is None or int(match[2]) > int(match[3]) or int(match[2]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form batch=1..4096")
    return Option(match[1], int(match[2]), int(match[3]))


def find(request: _dry_run.Request, option: Option, at: int) -> Found:
    """Looks for the largest value that fits with the allocator at that place."""
    runs: dict[int, _dry_run.Outcome] = {}

    def probe(value: int) -> bool:
        if value not in runs:
            try:
                runs[value] = _dry_run.dry_run(option.given(request, value))
            except SimError as error:
                raise SimError(f"with --{option.name} {value}: {error}") from error
            if runs[value].code:
                raise SimError(f"with --{option.name} {value} the program ended with code "
                               f"{runs[value].code}")
            # Each run takes seconds: whoever waits sees how far it is, in a log, too.
            verdict = "fits" if runs[value].fits(at) else "does not fit"
            print(f"drystone: --{option.name} {value} {verdict}", file=sys.stderr, flush=True)
        return runs[value].fits(at)

    if not probe(option.low):
        return _none(runs, option)
    fits, fails = option.low, option.high + 1
    while fails - fits > 1 and len(runs) < PROBES_MAX:
        value = _next(request, runs, fits, fails, at)
        if probe(value):
            fits = value
        else:
            fails = value
    if fits == option.high:
        proof = "the end of the range"
    elif fails not in runs:
        proof = f"larger ones up to {option.high} were not run"
    elif fails - fits == 1:
        proof = f"with {fails} it does not"
    else:
        proof = f"with {fails} it does not, and what lies between was not run"
    if len({_need(run, at) for run in runs.values()}) == 1 < len(runs):
        proof += f"; all held the same: does the program use --{option.name}?"
    return Found(runs[fits], f"--{option.name} {fits} fits: {len(runs)} runs, {proof}")


def _next(request: _dry_run.Request, runs: dict[int, _dry_run.Outcome], fits: int, fails: int,
          at: int) -> int:
    """Where the line through two runs meets the device's end; now and then the middle instead."""
    values = sorted(runs)
    if len(values) == 1:
        return min(fits * 2, fails - 1)
    if len(values) % 3 == 0 and fails in runs:
        # Where need is no line, this ends the search all the same.
        return (fits + fails) // 2
    low, high = (fits, fails) if fails in runs else values[-2:]
    needs = [_need(runs[value], at) for value in (low, high)]
    slope = (needs[1] - needs[0]) / (high - low)
    if slope <= 0:
        return fails - 1 if fails not in runs else (fits + fails) // 2
    guess = low + int((request.gpu.cuda.low - needs[0]) / slope)
    # A guess that was run and fits is proved by the next value.
    return max(fits + 1, min(guess, fails - 1))


def _need(outcome: _dry_run.Outcome, at: int) -> int:
    """At its highest, with what lies beside the allocator."""
    held = outcome.worst.replayed.held[at]
    besides = sum(one.high for one in outcome.worst.beside.values())
    return (held.smallest or held.reserved) + besides


def _none(runs: dict[int, _dry_run.Outcome], option: Option) -> Found:
    (value, outcome), = runs.items()
    return Found(outcome, f"--{option.name} {value} does not fit, and it is the least allowed")
