"""Holds dry runs against what real GPUs held: tables by class, for `docs/evidence/accuracy.md`.

    python score.py [--truth FOLDER] [--resume] ...

Runs `truth.py` for each data set, as many at once as there are jobs, and leaves the rows in a
folder: all anew, or the rest of what an earlier run left there. With no jobs it judges those that
lie there. What lies beside PyTorch's allocator on
the measured machine is not recorded; it is the median difference over a fifth of the rows, one
figure for each data set, and the other rows are judged with it.

Two things are asked of a promise: what the device shows, and whether it is enough to run. Of the
first the measurements tell; of the second the same program on a simulated device that has just that
much, and, on the measured one, the rows that were said to fit it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from drystone_sim._beside import CACHED  # noqa: E402

# The measured GPU; where less was left to a run, it may have been cut.
DEVICE_MIB = 40441
CUT_MIB = 39000
DEVICE = f"compute:8.0,multiprocessors:108,memory:{DEVICE_MIB}MiB,overcommit:true"
# A run that holds more than promised by both, a share and MiB, held more than promised.
MARGIN = 0.02, 128
WORST = 12
# Here what algorithms take is not known.
NOT_KNOWN = "convolutions", "both"
TRAINED_LESS = "did not train when measured"

# An error beyond this is far.
FAR = 0.08

Row = dict[str, Any]
# A row, what was promised, and what was measured, in MiB.
Judged = tuple[Row, float, float]


def run(what: str, truth: Path, rows: str, seed: str, jobs: int, is_rest: bool,
        folder: Path) -> list[Row]:
    """The rows of a data set, in the order of the seed, with what was reserved."""
    folder.mkdir(parents=True, exist_ok=True)
    # There is a process for each core already: threads would wait for each other.
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "SIMCUDA_CONF": DEVICE,
                   "OMP_NUM_THREADS": "1"}
    done = gathered(what, folder, is_rest or not jobs)
    running = [
        subprocess.Popen([sys.executable, HERE / "truth.py", what, truth, rows, seed, str(share),
                          str(jobs), done, folder / f"{what}-{share}.jsonl"], env=environment)
        for share in range(jobs)]
    if any([process.wait() for process in running]):
        sys.exit(f"{what}: a part of the rows was not run")
    texts = [file.read_text() for file in sorted(folder.glob(f"{what}-*.jsonl"))]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    found.sort(key=lambda row: int(row["number"]))
    return [row for row in found if int(row["number"]) < int(rows)]


def gathered(what: str, folder: Path, is_kept: bool) -> Path:
    """One file of all rows that earlier runs left, or of none."""
    lines = [line for file in sorted(folder.glob(f"{what}-*.jsonl")) if is_kept
             for line in file.read_text().splitlines(keepends=True)]
    done = folder / f"{what}-done.jsonl"
    gathering = folder / f"{what}.gathering"
    # The run may have been killed in the middle of a line.
    gathering.write_text("".join(line for line in lines if line.endswith("\n")))
    gathering.rename(done)
    for old in folder.glob(f"{what}-*.jsonl"):
        if old != done:
            old.unlink()
    return done


def fate(row: Row, beside: float) -> str:
    """Why a row is not judged, or nothing."""
    measured = float(row["measured_mib"])
    if "reserved_mib" not in row:
        return row.get("left", "failed" if "failed" in row else "too large to run")
    if row["reserved_mib"] + beside > DEVICE_MIB:
        return "said not to fit" + (
            ", and cut by the device" if measured >= CUT_MIB else ", and ended below it")
    if measured >= CUT_MIB:
        return "cut by the device when measured, and said to fit"
    # Weights, gradients and one value more for each weight: the least that any of them holds.
    if measured < 3 * row["weights_mib"] + beside:
        return TRAINED_LESS
    return ""


def beside_of(rows: list[Row]) -> float:
    """The median difference, in MiB, of rows that ran, but for those that cuDNN adds to."""
    ran = [row for row in rows if row.get("class", NOT_KNOWN[0]) not in NOT_KNOWN
           and float(row["measured_mib"]) < CUT_MIB]
    return statistics.median(float(row["measured_mib"]) - likely(row, 0) for row in ran)


def likely(row: Row, beside: float) -> float:
    """What a row is said to hold, in MiB: with one workspace, of a likely size."""
    return beside + row["reserved_mib"] + row.get("likely_mib", 0)


def ends(row: Row, beside: float) -> tuple[float, float]:
    """The least that a row is said to hold, and the most that it is said to need, in MiB."""
    least = beside + row["reserved_mib"]
    return least, least + CACHED * row.get("most_mib", 0)


def shown(row: Row, beside: float) -> float:
    """The most that a row is said to show, in MiB: also while it searches, by cuDNN's own word."""
    least, most = ends(row, beside)
    return max(most, least + row.get("engine_mib", 0))


def report(name: str, rows: list[Row]) -> None:
    """The tables of a data set."""
    if not rows:
        return
    fifth = max(len(rows) // 5, 1)
    beside = beside_of(rows[:fifth])
    fates: dict[str, int] = {}
    judged = []
    for row in rows[fifth:]:
        why = fate(row, beside)
        fates[why] = fates.get(why, 0) + 1
        if not why:
            judged.append((row, likely(row, beside), float(row["measured_mib"])))
    print(f"### {name}: {len(judged)} of {len(rows) - fifth} rows judged\n")
    print(f"Beside the allocator: {beside:.0f} MiB, from {fifth} other rows. Not judged: "
          + ("; ".join(f"{count} {why}" for why, count in sorted(fates.items()) if why) or "none")
          + ".\n")
    print("| class | rows | median error | 95th percentile | needed, width | more than that "
          "| shown, width | more than that | less | not enough |\n" + "| --- " * 10 + "|")
    for kind in sorted({row["class"] for row, _, _ in judged}):
        print(f"| {kind} | {line([one for one in judged if one[0]['class'] == kind], beside)} |")
    judged.sort(key=lambda one: -abs(error(one)))
    low = [one for one in judged if error(one) < -FAR]
    told = sum(one[2] <= most(shown(one[0], beside)) for one in low)
    high = [one for one in judged if error(one) > FAR]
    alone = sum(ends(row, beside)[0] <= held * (1 + MARGIN[0]) for row, _, held in high)
    rest = sorted(abs(error(one)) for one in judged if one not in low)
    print(f"\nMore than {FAR:.0%} too low: {len(low)}, {told} of them within what may be shown. "
          f"Too high: {len(high)}, {alone} of them by the likely workspace alone. 95th percentile "
          f"without those too low: {rest[int(len(rest) * 0.95)]:.1%}.\n")
    print("| furthest off | promised / measured | needed, at most | shown, at most |\n"
          + "| --- " * 4 + "|")
    for row, promise, held in judged[:WORST]:
        what = row.get("model") or f"{row['arch']}, {row['depth']} layers"
        print(f"| {what}, batch {row['batch']} | {promise / held:.2f} | "
              f"{ends(row, beside)[1] / held:.2f} | {shown(row, beside) / held:.2f} |")
    print()
    tell_device(rows[fifth:], beside)


def line(rows: list[Judged], beside: float) -> str:
    """A class: errors, the widths of both ranges, and what was beyond them."""
    errors = sorted(abs(error(one)) for one in rows)
    cells = [str(len(rows)), f"{statistics.median(errors):.1%}",
             f"{errors[int(len(errors) * 0.95)]:.1%}"]
    for high in ((lambda row: ends(row, beside)[1]), (lambda row: shown(row, beside))):
        wide = statistics.median(high(row) / ends(row, beside)[0] - 1 for row, *_ in rows)
        over = sum(held > most(high(row)) for row, _, held in rows)
        cells += [f"{wide:.1%}", f"{over} ({over / len(rows):.1%})"]
    least = [ends(row, beside)[0] for row, *_ in rows]
    cells.append(str(sum(one[2] < low - margin(low) for one, low in zip(rows, least, strict=True))))
    tried = [row["enough"] for row, *_ in rows if "enough" in row]
    return " | ".join([*cells, f"{tried.count(False)} of {len(tried)}" if tried else ""])


def error(one: Judged) -> float:
    """How far a promise is off, of what was measured."""
    _, promise, held = one
    return (promise - held) / held


def most(promise: float) -> float:
    """The most that a run may show that holds no more than was promised, in MiB."""
    return promise + margin(promise)


def tell_device(rows: list[Row], beside: float) -> None:
    """What became of the rows that certainly fit the device that was measured."""
    fitting = [row for row in rows if "reserved_mib" in row
               and ends(row, beside)[1] <= DEVICE_MIB and fate(row, beside) != TRAINED_LESS]
    ended = reached = 0
    for row in fitting:
        least, held = ends(row, beside)[0], float(row["measured_mib"])
        reached += held >= CUT_MIB
        ended += held < least - margin(least)
    print(f"Said to fit the measured device: {len(fitting)}. {reached} of them reached its end; "
          f"{ended} held less than they were said to need.\n")


def margin(promise: float) -> float:
    """What a run may differ from a promise, in MiB."""
    return max(MARGIN[0] * promise, MARGIN[1])


def main() -> None:
    """All tables."""
    parser = argparse.ArgumentParser(prog="cargo xtask score")
    add = parser.add_argument
    root = HERE.parents[1]
    add("--truth", metavar="FOLDER", type=Path, default=root / "../shared/truth",
        help="the folder of `timm.csv` and `mlp.csv`")
    for name, what in (("timm", "runs of timm's models"), ("mlp", "perceptrons")):
        add(f"--{name}", metavar="ROWS", default=str(2**32 - 1),
            help=f"how many {what}, a sample; all without it")
    add("--seed", default="1", help="chooses the samples, and the rows that are not judged")
    add("--jobs", type=int, default=os.cpu_count() or 1,
        help="how many models are run at once; with 0 the rows that ran last are judged again")
    add("--resume", action="store_true",
        help="goes on where an earlier run of this seed ended, in place of running all rows anew")
    add("--rows", type=Path, required=True, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not (asked.truth / "timm.csv").exists():
        sys.exit(f"there are no measurements in {asked.truth}: name their folder by --truth")
    for name, wanted in (("timm", asked.timm), ("mlp", asked.mlp)):
        report(name, run(name, asked.truth / f"{name}.csv", wanted, asked.seed, asked.jobs,
                         asked.resume, asked.rows / f"seed-{asked.seed}"))


if __name__ == "__main__":
    main()
