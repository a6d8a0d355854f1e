"""Records traces of this folder anew: full-size models on PyTorch's own allocator.

    cargo xtask torch -- traces/record.py [NAME...]

makes NAME.csv.zst and NAME.json of each, or of all, with the `drystone` command on PATH. No GPU is
needed, nor memory for the models: they run on the simulated device. Invariant: the same versions of
PyTorch and transformers ask for the same again. So lengths come of fixed seeds, memory reads as
zero, and every event takes four microseconds; only the order in which a backward pass lets go of
its graph, all at one time, is left to chance.

The programs are in `single.py` (one stream), `streams.py` (several streams, or graphs), and
`held_back*.py` (recorded when the policy stood; files in `held-back/`); what they share is in
`parts.py`, what is recorded beyond PyTorch's own history in `annotate.py`.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from parts import HELD_BACK, RECORDED
import annotate
import held_back  # noqa: F401
import held_back_after_tuning  # noqa: F401
import held_back_blind_engines  # noqa: F401
import held_back_blind_graphs  # noqa: F401
import held_back_blind_judged  # noqa: F401
import held_back_blind_media  # noqa: F401
import held_back_blind_objects  # noqa: F401
import held_back_blind_pieces  # noqa: F401
import held_back_blind_ring  # noqa: F401
import held_back_blind_robots  # noqa: F401
import held_back_blind_shapes  # noqa: F401
import held_back_blind_solved  # noqa: F401
import held_back_blind_space  # noqa: F401
import held_back_blind_texts  # noqa: F401
import held_back_blind_voices  # noqa: F401
import held_back_last  # noqa: F401
import held_back_last_served  # noqa: F401
import held_back_newest  # noqa: F401
import single  # noqa: F401
import streams  # noqa: F401

import torch

HERE = Path(__file__).resolve().parent
ALL = RECORDED | HELD_BACK
NS_PER_EVENT = 4000
ENTRIES_MAX = 5_000_000


def folder_of(name: str) -> Path:
    """Where both files of a trace are."""
    return HERE / "held-back" if name in HELD_BACK else HERE


def record(name: str, snapshot: Path) -> None:
    """Runs a model's steps, and writes what PyTorch recorded of them."""
    prepare, steps, _ = ALL[name]
    torch.manual_seed(0)
    random.seed(0)
    annotate.enable()
    torch.cuda.memory._record_memory_history(
        max_entries=ENTRIES_MAX, context=None, stacks="python", global_record_annotations=True)
    step = prepare()
    for number in range(steps):
        with torch.profiler.record_function(f"ProfilerStep#{number}"):
            step()
    torch.cuda.memory._dump_snapshot(str(snapshot))
    torch.cuda.memory._record_memory_history(enabled=None)


def evenly_timed(trace: str) -> str:
    """A trace whose every event takes the same time: the clock was that of this machine."""
    lines, at = [], -1
    for line in trace.splitlines():
        is_event = line[:2] in ("a,", "f,", "s,", "e,", "m,", "o,", "w,", "c,", "d,")
        at += is_event
        cells = line.split(",")
        if is_event:
            cells[4] = str(at * NS_PER_EVENT)
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


def make(name: str, drystone: str) -> None:
    """Both files of a trace."""
    target = folder_of(name) / f"{name}.csv.zst"
    with tempfile.TemporaryDirectory() as folder:
        snapshot, text = Path(folder) / "recorded.pickle", Path(folder) / f"{name}.csv"
        # In a process of its own: nothing of one model is left for the next.
        subprocess.run([sys.executable, "-B", __file__, "--record", name, str(snapshot)], check=True)
        subprocess.run([drystone, "convert", str(snapshot), str(text)], check=True)
        text.write_text(evenly_timed(text.read_text()))
        subprocess.run([drystone, "convert", str(text), str(target)], check=True)
    done = subprocess.run(
        [drystone, "inspect", "--json", str(target)], check=True, capture_output=True, text=True)
    summary = json.loads(done.stdout)["traces"][0]["summary"]
    about = {
        "name": name, "origin": "recorded by traces/record.py", "licence": "project's own",
        "note": ALL[name][2], "torch": torch.__version__, "transformers": _transformers(),
        "events": summary["events"], "allocs": summary["allocations"], "frees": summary["frees"],
        "peak_live_bytes": summary["peak_requested_bytes"],
        "distinct_sizes": summary["distinct_sizes"], "iterations": summary["iterations"],
        "streams": len(summary["streams"]), "file": target.name,
        "file_bytes": target.stat().st_size,
    }
    target.with_suffix("").with_suffix(".json").write_text(json.dumps(about, indent=1) + "\n")
    print(f"{name}: {summary['events']} events, {about['file_bytes']} bytes")


def _transformers() -> str:
    import transformers
    return transformers.__version__


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--record"]:
        record(arguments[1], Path(arguments[2]))
        return
    unknown = [name for name in arguments if name not in ALL]
    if unknown:
        sys.exit(f"no trace {unknown[0]}; there are {', '.join(ALL)}")
    drystone = shutil.which("drystone")
    if drystone is None:
        sys.exit("the drystone command is not on PATH: cargo install --path crates/tools/cli")
    for name in arguments or ALL:
        make(name, drystone)


if __name__ == "__main__":
    main(sys.argv[1:])
