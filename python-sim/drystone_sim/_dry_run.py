"""A dry run: the program as it is, on the simulated device, in processes of its own.

Lives here: starting the program, waiting for it with a sign of life, and putting together what its
processes recorded with what each allocator would hold of it. Where sizes depend on values, it runs
twice: with the least and the most of each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import _allocators, _libraries, _recording, _sizes
from ._beside import OTHERS, beside
from ._errors import SimError
from ._gpus import Gpu, Range
from ._variables import CONTEXT, FOLDER, SIZES, STEPS, VALUES

# Ranks decide by small numbers that they sent each other, such as the order of buckets: copies up
# to so many bytes are real. Larger ones would take the host's memory.
REAL_BYTES = 65536
START = Path(__file__).resolve().parent / "_start"
# The program is quiet for so long before a line says that it still runs.
PATIENCE_S = 1.0
# What an interrupted program has for its own end, before it is ended; and once more.
GRACE_S = 5.0
ALLOCATORS = tuple(_allocators.NAMES.values())


@dataclass
class Request:
    """What is to be run, and how."""

    command: list[str]
    gpu: Gpu
    steps: int = 3
    values: str = "zeros"
    ranks: int = 1
    # Where each rank's recording is left, if anywhere.
    record: Path | None = None
    # Sizes that depend on values; as those are, if not said.
    sizes: str = ""
    # Whether memory ends where the device's does; else the program gets all that it asks for.
    is_limited: bool = False

    def changed(self, command: list[str]) -> Request:
        """The same for another command."""
        return replace(self, command=command)


@dataclass
class Rank:
    """One process on one device: its recording, and the same through every allocator."""

    rank: int
    course: _recording.Course
    process: _recording.Process
    replayed: _allocators.Replayed
    beside: dict[str, Range] = field(default_factory=dict)
    # Whether more may be asked for, by a size whose most is not known.
    is_open: bool = False

    @property
    def place(self) -> str:
        """The device, as all processes name it."""
        return self.process.place(self.course.device)

    @property
    def most(self) -> int:
        """What the process may take of its device, in bytes."""
        return (max(held.reserved for held in self.replayed.held)
                + sum(one.high for one in self.beside.values()))


@dataclass
class Outcome:
    """What a dry run found; where sizes depend on values, with those that need more."""

    request: Request
    ranks: list[Rank]
    code: int
    run_s: float
    # With the other sizes, if it ran with them.
    other: Outcome | None = None
    # Why there is no run with the most of each size, where there should be one.
    no_most: str = ""

    @property
    def worst(self) -> Rank:
        """The rank that needs most."""
        return max(self.ranks, key=lambda rank: rank.course.peak)

    def fits(self, at: int) -> bool:
        """Whether every rank certainly fits with the allocator at that place, as far as it ran."""
        return all(rank.replayed.held[at].refused == 0 and not rank.is_open
                   for rank in self.ranks)


def dry_run(request: Request) -> Outcome:
    """Runs the program and says what it needs."""
    least = _once(request)
    if request.values != "zeros" or not any(_sizes_of(rank)["met"] for rank in least.ranks):
        return least
    _say("sizes depend on values: once more, with the most of each")
    try:
        most = _once(replace(request, sizes=_sizes.MOST,
                             record=request.record and request.record / _sizes.MOST))
    except SimError as error:
        return _opened(least, str(error))
    if most.code and not least.code:
        return _opened(least, f"with the most of each size the program ended with code {most.code}")
    low, high = sorted((least, most), key=lambda outcome: outcome.worst.course.peak)
    return replace(high, other=low, code=most.code, run_s=least.run_s + most.run_s)


def _sizes_of(rank: Rank) -> dict[str, bool]:
    sizes: dict[str, bool] = rank.process.told["sizes"]
    return sizes


def _opened(least: Outcome, why: str) -> Outcome:
    ranks = [replace(rank, is_open=True) for rank in least.ranks]
    return replace(least, ranks=ranks, no_most=why)


def _once(request: Request) -> Outcome:
    """Runs the program with one choice of sizes."""
    folder = Path(tempfile.mkdtemp(prefix="drystone-dry-run-"))
    try:
        began = time.monotonic()
        code = _run(request, folder)
        run_s = time.monotonic() - began
        if code < 0:
            # Killed: by whom, the program cannot tell.
            raise SimError(f"the program was ended by signal {-code}")
        try:
            processes = _recording.read(folder)
        except SimError as error:
            if code:
                raise SimError(f"the program ended with code {code} before it asked for any "
                               "memory of a device: what it said of that is above"
                               f"{_hidden()}") from error
            raise
        if request.record is not None:
            for process in processes:
                _leave(process, request.record)
        _say("replaying the recording through each allocator")
        ranks = _ranks(request.gpu, processes)
        return Outcome(request, ranks, code, run_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hidden() -> str:
    """Which devices the program was told to see: of a real machine, most likely."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if visible is None else (f". CUDA_VISIBLE_DEVICES is {visible!r} here, and holds for "
                                       "simulated devices, too: unset it, or name indices")


def _leave(process: _recording.Process, folder: Path) -> None:
    """Leaves a rank's recording as PyTorch writes it, and a table of each of its devices."""
    rank = process.told["rank"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept = Path(shutil.copyfile(process.file, folder / f"rank-{rank}.pickle"))
    except OSError as error:
        raise SimError(f"cannot leave the recording in {folder}: {error}") from error
    for at, course in enumerate(process.courses):
        device = f"-device-{course.device}" if len(process.courses) > 1 else ""
        _allocators.convert(kept, at, folder / f"rank-{rank}{device}.parquet")


def _ranks(gpu: Gpu, processes: list[_recording.Process]) -> list[Rank]:
    """Each process on each of its devices, with what others may hold there meanwhile."""
    alone = [(process, _ranks_of(gpu, process)) for process in processes]
    held: Counter[str] = Counter()
    for _, ranks in alone:
        for rank in ranks:
            held[rank.place] += rank.most
    found = []
    for process, ranks in alone:
        others = max(held[rank.place] - rank.most for rank in ranks)
        found += _ranks_of(gpu, process, others) if others else ranks
    return found


def _ranks_of(gpu: Gpu, process: _recording.Process, others: int = 0) -> list[Rank]:
    besides = beside(gpu, process.told["calls"], process.told["searches"])
    if others:
        # Whether they run at the same time is not known.
        besides[OTHERS] = Range(0, others)
    # What is certainly left: whatever is not known is taken at its worst.
    capacity = gpu.cuda.low - sum(one.high for one in besides.values())
    replays = _allocators.replay(process.file, max(capacity, 2 << 20))
    is_open = process.told["sizes"]["endless"]
    return [Rank(process.told["rank"], course, process, replayed, besides, is_open)
            for course, replayed in zip(process.courses, replays, strict=True)]


def _run(request: Request, folder: Path) -> int:
    # Else the program would end in it, at its import of PyTorch.
    _libraries.of_torch()
    device = f"{request.gpu.settings()},devices:{request.ranks}"
    if request.is_limited:
        device += f",context:{request.gpu.context.high},overcommit:false"
    if request.ranks > 1:
        device += f",backing:true,backing_limit:{REAL_BYTES}"
    environment = _libraries.environment(os.environ, device)
    paths = [str(START), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    environment.update({
        FOLDER: str(folder), STEPS: str(request.steps), VALUES: request.values,
        SIZES: request.sizes,
        CONTEXT: str(0 if request.is_limited else request.gpu.context.high),
        "PYTHONPATH": os.pathsep.join(paths)})
    try:
        # Standard output is the report's.
        process = subprocess.Popen(request.command, env=environment, stdout=sys.stderr)
    except OSError as error:
        raise SimError(f"cannot run {request.command[0]}: {error.strerror}") from error
    began = time.monotonic()
    while True:
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            _say(f"running {request.command[-1]}: {time.monotonic() - began:.0f} s", "\r")
        except KeyboardInterrupt:
            _end(process)
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a program that was most likely interrupted with us: by itself, if it can."""
    for end in (process.terminate, process.kill):
        try:
            process.wait(GRACE_S)
            return
        except subprocess.TimeoutExpired:
            end()
    process.wait()


def _say(text: str, end: str = "\n") -> None:
    if sys.stderr.isatty():
        print(f"drystone: {text}", end=end, file=sys.stderr, flush=True)
