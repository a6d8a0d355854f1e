"""Holds dry runs against what real GPUs held: tables by class, for `docs/accuracy.md`.

    python score.py TRUTH_FOLDER TIMM_ROWS MLP_ROWS SEED

Runs `truth.py` for each data set. What lies beside PyTorch's allocator on the measured machine is
not recorded; it is the median difference over a fifth of the rows, one figure for each data set,
and the other rows are judged with it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# The measured GPU; where less was left to a run, it may have been cut.
DEVICE_MIB = 40441
CUT_MIB = 39000
DEVICE = f"compute:8.0,multiprocessors:108,memory:{DEVICE_MIB}MiB,overcommit:true"
# A run that holds more than promised by both, a share and MiB, held more than promised.
MARGIN = 0.02, 128
WORST = 12
# Here what algorithms take is not known.
NOT_KNOWN = "convolutions"

Row = dict[str, Any]


def run(what: str, truth: Path, rows: str, seed: str) -> list[Row]:
    """The rows of a data set, with what was reserved."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "rows.json")
        subprocess.run(
            [sys.executable, HERE / "truth.py", what, truth, rows, seed, out], check=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent), "SIMCUDA_CONF": DEVICE})
        return json.loads(out.read_text())


def fate(row: Row, beside: float) -> str:
    """Why a row is not judged, or nothing."""
    measured = float(row["measured_mib"])
    if "reserved_mib" not in row:
        return row.get("left", "too large to run")
    if row["reserved_mib"] + beside > DEVICE_MIB:
        return "said not to fit" + (
            ", and cut by the device" if measured >= CUT_MIB else ", and ended below it")
    if measured >= CUT_MIB:
        return "cut by the device when measured, and said to fit"
    # Weights, gradients and one value more for each weight: the least that any of them holds.
    if measured < 3 * row["weights_mib"] + beside:
        return "did not train when measured"
    return ""


def beside_of(rows: list[Row]) -> float:
    """The median difference, in MiB, of rows that ran, but for those that cuDNN adds to."""
    ran = [row for row in rows if row.get("class", NOT_KNOWN) != NOT_KNOWN]
    return statistics.median(float(row["measured_mib"]) - row["reserved_mib"] for row in ran)


def report(name: str, rows: list[Row]) -> None:
    """The tables of a data set."""
    fifth = max(len(rows) // 5, 1)
    beside = beside_of(rows[:fifth])
    fates: dict[str, int] = {}
    judged = []
    for row in rows[fifth:]:
        why = fate(row, beside)
        fates[why] = fates.get(why, 0) + 1
        if not why:
            judged.append((row, row["reserved_mib"] + beside, float(row["measured_mib"])))
    print(f"### {name}: {len(judged)} of {len(rows) - fifth} rows judged\n")
    print(f"Beside the allocator: {beside:.0f} MiB, from {fifth} other rows. Not judged: "
          + ("; ".join(f"{count} {why}" for why, count in sorted(fates.items()) if why) or "none")
          + ".\n")
    print("| class | rows | median error | 95th percentile | more than promised |\n"
          "| --- | --- | --- | --- | --- |")
    for kind in sorted({row["class"] for row, _, _ in judged}):
        ours = [(promise, held) for row, promise, held in judged if row["class"] == kind]
        errors = sorted(abs(promise - held) / held for promise, held in ours)
        short = sum(held > promise + max(MARGIN[0] * promise, MARGIN[1])
                    for promise, held in ours)
        print(f"| {kind} | {len(ours)} | {statistics.median(errors):.1%} | "
              f"{errors[int(len(errors) * 0.95)]:.1%} | {short} ({short / len(ours):.1%}) |")
    print("\n| furthest off | promised / measured |\n| --- | --- |")
    judged.sort(key=lambda one: -abs(one[1] - one[2]) / one[2])
    for row, promise, held in judged[:WORST]:
        what = row.get("model") or f"{row['arch']}, {row['depth']} layers"
        print(f"| {what}, batch {row['batch']} | {promise / held:.2f} |")
    print()


def main(folder: str, timm_rows: str, mlp_rows: str, seed: str) -> None:
    """All tables."""
    report("timm", run("timm", Path(folder, "timm.csv"), timm_rows, seed))
    report("mlp", run("mlp", Path(folder, "mlp.csv"), mlp_rows, seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
