"""Tensors that go to another process by descriptor, and what is left of them in both.

Prints a row for each pair of allocators: whether the receiver saw what the sender wrote, the sender
what the receiver wrote, also after the sender's memory was remapped; and what the receiver kept.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cuda import MIB, Cuda, skip, tell

PAIRS = (("vmm", "vmm"), ("remapping", "vmm"), ("vmm", "expandable"), ("expandable", "vmm"))
#: What the receiver's context may have taken between its two looks at a device that others use.
KEPT_MAX = 64 * MIB


def row(sender: str, receiver: str, computes: bool) -> dict[str, object]:
    """A failure is an answer, and no failure of the others."""
    pair = {"sender": sender, "receiver": receiver}
    program = Path(__file__).with_name("sharing.py")
    try:
        done = subprocess.run([sys.executable, "-B", str(program), sender, receiver], text=True,
                              capture_output=True, timeout=100)
        found = json.loads(done.stdout.splitlines()[-1])
        answers = found["answers"]
        seen = [*answers[0].get("seen", [False]), *answers[-1].get("seen", [])]
        for answer in answers[1:2]:
            seen += answer["seen"]
    except (subprocess.TimeoutExpired, IndexError, ValueError, KeyError) as error:
        said = (done.stderr.strip().splitlines() or [""])[-1] if "done" in locals() else ""
        return {**pair, "came to": f"failed: {type(error).__name__}: {said}"[:400]}
    kept = answers[-1].get("kept", 0)
    if not computes:
        came_to = "copied nothing"
    elif not (all(seen) and found.get("unmoved") and all(found.get("written", [False]))):
        came_to = f"failed: differs; {answers[0].get('error', '')}"
    else:
        came_to = "right" if kept <= KEPT_MAX else "failed: the receiver kept memory"
    return {**pair, "came to": came_to, "kept MiB": kept // MIB, "forms": found["forms"],
            "exit": found["exit"]}


def main() -> int:
    cuda = Cuda()
    cuda.must_serve_several()
    try:
        import torch  # noqa: F401
    except ImportError as error:
        skip(f"no PyTorch: {error}")
    rows = []
    for pair in PAIRS:
        rows.append(row(*pair, not cuda.is_simulated()))
        tell(rows[-1])
    return any(str(one["came to"]).startswith("failed") for one in rows)


if __name__ == "__main__":
    sys.exit(main())
