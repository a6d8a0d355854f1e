"""Holds dry runs against what real GPUs held: tables by class, for `docs/accuracy.md`.

    python score.py TRUTH_FOLDER TIMM_ROWS MLP_ROWS SEED

Runs `truth.py` for each data set. What lies beside PyTorch's allocator on the measured machine is
not recorded; it is the median difference over the first fifth of the rows, one figure for each
data set, and the other rows are judged with it.
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
# Shown with each promise.
MARGIN = 0.02, 128
WORST = 12

Row = dict[str, Any]


def run(what: str, truth: Path, rows: str, seed: str) -> list[Row]:
    """The rows of a data set, with what was reserved."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "rows.json")
        subprocess.run(
            [sys.executable, HERE / "truth.py", what, truth, rows, seed, out], check=True,
            env={**os.environ, "PYTHONPATH": str(HERE.parent), "SIMCUDA_CONF": f"compute:8.0,multiprocessors:108,"
                 f"memory:{DEVICE_MIB}MiB,overcommit:true"})
        return json.loads(out.read_text())


def usable(row: Row) -> bool:
    """Whether the measured run trained, and was not cut by the device."""
    if "reserved_mib" not in row:
        return False
    measured = float(row["measured_mib"])
    # Weights and gradients are held at least.
    return 2 * row["weights_mib"] + 1000 < measured < CUT_MIB


def report(name: str, rows: list[Row]) -> None:
    """The tables of a data set."""
    left: dict[str, int] = {}
    for row in rows:
        measured = float(row["measured_mib"])
        why = row.get("left") or (
            "cut by the device when measured" if measured >= CUT_MIB
            else "did not train when measured" if not usable(row) else None)
        if why:
            left[why] = left.get(why, 0) + 1
    good = [row for row in rows if usable(row)]
    fifth = max(len(good) // 5, 1)
    beside = statistics.median(
        float(row["measured_mib"]) - row["reserved_mib"] for row in good[:fifth])
    print(f"## {name}: {len(rows)} rows, {len(good)} judged\n")
    print(f"Beside the allocator: {beside:.0f} MiB, from the first {fifth} rows. Left out: "
          + "; ".join(f"{count} {why}" for why, count in sorted(left.items())) + ".\n")
    print("| class | rows | median error | 95th percentile | promised and not enough |\n"
          "| --- | --- | --- | --- | --- |")
    judged = [(row, row["reserved_mib"] + beside, float(row["measured_mib"]))
              for row in good[fifth:]]
    for kind in sorted({row["class"] for row, _, _ in judged}):
        ours = [(promise, held) for row, promise, held in judged if row["class"] == kind]
        errors = sorted(abs(promise - held) / held for promise, held in ours)
        short = sum(held > promise + max(MARGIN[0] * promise, MARGIN[1])
                    for promise, held in ours)
        print(f"| {kind} | {len(ours)} | {statistics.median(errors):.1%} | "
              f"{errors[int(len(errors) * 0.95)]:.1%} | {short} ({short / len(ours):.1%}) |")
    print("\n| furthest off | promised MiB | measured MiB |\n| --- | --- | --- |")
    judged.sort(key=lambda one: -abs(one[1] - one[2]) / one[2])
    for row, promise, held in judged[:WORST]:
        what = row.get("model") or f"{row['arch']}, {row['depth']} layers"
        print(f"| {what}, batch {row['batch']} | {promise:.0f} | {held:.0f} |")
    print()


def main(folder: str, timm_rows: str, mlp_rows: str, seed: str) -> None:
    """All tables."""
    report("timm", run("timm", Path(folder, "timm.csv"), timm_rows, seed))
    report("mlp", run("mlp", Path(folder, "mlp.csv"), mlp_rows, seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
