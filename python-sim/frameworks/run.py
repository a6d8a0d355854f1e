"""Dry-runs the programs beside this, each of a framework as it is installed: a row for each.

    python run.py

Ends with 0 where each ran its steps. `docs/use/dry-run.md` names them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# A program, how it is started, and the packages whose versions matter.
PROGRAMS = (
    ("trainer.py", (), ("transformers", "accelerate")),
    ("trainer.py", ("accelerate", "launch", "--num_processes", "2"),
     ("transformers", "accelerate")),
    ("sft.py", (), ("trl", "peft", "transformers", "datasets")),
    ("lightning_fit.py", (), ("lightning",)),
    ("diffusion.py", (), ("diffusers", "accelerate")),
)
MIB = 1 << 20


def main() -> int:
    """The table."""
    print("| program | started by | packages | steps | requests | peak requested, MiB | s |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    failed = 0
    for file, launcher, packages in PROGRAMS:
        done = subprocess.run(
            [sys.executable, "-B", "-m", "drystone_sim", "dry-run", "--json", "--gpu", "l4",
             *launcher, str(HERE / file)], capture_output=True, text=True)
        versions = ", ".join(f"{name} {version(name)}" for name in packages)
        started = " ".join(launcher) or "Python"
        if done.returncode:
            failed += 1
            why = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
            print(f"| {file} | {started} | {versions} | failed: {why[0]} | | | |", flush=True)
            continue
        found = json.loads(done.stdout)
        worst = max(found["ranks"], key=lambda rank: rank["peak_requested_bytes"])
        print(f"| {file} | {started} | {versions} | {worst['steps']} | {worst['requests']:,} | "
              f"{peak_text(found, worst)} | {found['run_s']:.0f} |", flush=True)
    return 1 if failed else 0


def peak_text(found: dict[str, Any], worst: dict[str, Any]) -> str:
    """Both bounds, where sizes depend on values."""
    least, most = (found["sizes"] or {}).get("peak_requested_bytes", (None, None))
    high = f"{(most or worst['peak_requested_bytes']) / MIB:.1f}"
    return high if least is None else f"{least / MIB:.1f} to {high if most else 'unknown'}"


if __name__ == "__main__":
    sys.exit(main())
