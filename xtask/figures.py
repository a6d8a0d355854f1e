"""What each trace costs on devices from ample to barely enough, held against the goals: the part of
`cargo xtask figures` that follows the build of the command `drystone`.

Lives here: which replays are made, which goals they have, and both tables. Replays are `drystone
sweep`'s and `drystone fit`'s, over the traces of the repository and every program that `drystone
generate` knows. What is not measured misses no goal; what misses one has a `!`.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: Who is compared, Drystone first.
OURS, EXPANDABLE = "drystone-vmm", "torch-expandable"
ALLOCATORS = (OURS, EXPANDABLE, "torch-native", "torch-async")
#: Devices that the goals speak of; at least a quarter of the first two is free.
ALL = ("ample", "1.34x", "1.25x", "1.1x", "1.05x", "1.02x")
PLENTY, ROOMY, TIGHT = ALL[:2], ALL[:5], ALL[5:]
#: Tables of prices under which a conclusion is to hold; where calls are free, the makespan tells of
#: waiting alone.
COSTS = "free,a100,vattention,small"
#: Programs that come up to the end of memory are there for a device of this size.
AT_THE_LIMIT = dict.fromkeys(("batch-finder", "out-of-memory", "first-growth"), "80GiB")
#: The picture's traces: three streams, four streams, and one each with and without repetition; and
#: its devices, closest together where allocators begin to refuse.
PICTURED = ("llama_1b_fsdp2_8way", "four_streams_inference", "vit_large_varying_batch",
            "moe_mixtral_small_train")
PICTURED_DEVICES = ("1x,1.0025x,1.005x,1.0075x,1.01x,1.015x,1.02x,1.03x,1.04x,1.05x,1.075x,1.1x,"
                    "1.15x,1.2x,1.25x,1.3x,1.35x,1.4x,1.45x,1.5x")
#: Just above the smallest device that serves a trace.
BRIM = 1.005
#: Goals of means: the smallest device over the peak request; driver time over expandable's where
#: memory is plenty.
MEAN_FIT_MOST, MEAN_TIME_MOST = 1.004, 0.5

Run = dict[str, object]


def figure(run: Run, field: str) -> float | None:
    """A figure of a replay, where it was measured."""
    return run.get(field, (run.get("device_time") or {}).get(field))


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """0 where both are nothing."""
    if ours is None or theirs is None:
        return None
    return 0.0 if ours == 0 else math.inf if theirs == 0 else ours / theirs


def over_expandable(row: Run, field: str) -> float | None:
    return ratio(row["drystone"].get(field), row["expandable"].get(field))


class Goal(NamedTuple):
    name: str
    what: str
    figure: Callable[[Run], float | None]
    most: float
    devices: tuple[str, ...] | None = None

    def concerns(self, row: Run) -> bool:
        is_meant = self.devices is None or row["device"] in self.devices
        return is_meant and self.figure(row) is not None

    def is_missed(self, row: Run) -> bool:
        return self.concerns(row) and self.figure(row) > self.most


GOALS = (
    Goal("refused", "refused requests",
         lambda row: row["drystone"].get("out_of_memory_events"), 0, ALL),
    Goal("waits", "waits inserted", lambda row: figure(row["drystone"], "stream_waits"), 0, PLENTY),
    # Where calls have prices start-up is in it, of whose price the time tells.
    Goal("makespan", "makespan over that of never waiting",
         lambda row: row["drystone"].get("makespan_over_ideal") if row["costs"] == "free" else None,
         1.01, PLENTY),
    Goal("time", "driver time of the whole run over expandable's",
         lambda row: over_expandable(row, "driver_time_us"), 1.0, ROOMY),
    Goal("late", "driver time of the last quarter over expandable's",
         lambda row: over_expandable(row, "steady_driver_time_us"), 0.25, TIGHT),
    Goal("calls", "steady calls over expandable's",
         lambda row: over_expandable(row, "steady_driver_calls"), 1.0, PLENTY),
)
FIT_GOALS = (
    Goal("fit", "fits in <= 1.015 and no more than expandable",
         lambda fit: (math.inf if fit["fits"][0] is None
                      or fit["fits"][1] is not None and fit["fits"][0] > fit["fits"][1]
                      else fit["fits"][0]), 1.015),
    Goal("time at the brim", "driver time at the brim over ample <= 2",
         lambda fit: fit["time"][0], 2.0),
    Goal("makespan at the brim", "makespan at the brim over ample <= 1.02",
         lambda fit: fit["makespan"][0], 1.02),
)


def missed(row: Run, goals: Iterable[Goal] = GOALS) -> list[str]:
    return [goal.name for goal in goals if goal.is_missed(row)]


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Over what is finite and above zero: nothing has no logarithm."""
    logarithms = [math.log(value) for value in values if value and 0 < value < math.inf]
    return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else None


def rows_of(trace: Run, configuration: str) -> list[Run]:
    """One for each device and table of prices, with Drystone in this configuration."""
    def cell(allocator: str, beside: Run) -> Run:
        found = (one for one in trace["cells"]
                 if one["allocator"] == allocator and one["configuration"] == ""
                 and all(one.get(key) == beside.get(key) for key in ("costs", "device")))
        return next(found, {})

    rows = []
    for ours in trace["cells"]:
        if (ours["allocator"], ours["configuration"]) == (OURS, configuration):
            row = {"trace": trace["trace"], "costs": ours.get("costs", ""),
                   "device": ours["device"], "drystone": ours,
                   **{name.partition("-")[2]: cell(name, ours) for name in ALLOCATORS[1:]}}
            rows.append(row | {"missed": missed(row)})
    return rows


#: Heads and widths of the columns; names stand at the left.
COLUMNS = (("trace", -31), ("prices", -10), ("device", -7), ("refused", 12), ("waits", 17),
           ("makespan", 28), ("time/exp", 9), ("late/exp", 9), ("steady calls", 23),
           ("res/req", 28), ("driver time", 12))


def line(cells: Iterable[str], widths: Iterable[int]) -> str:
    placed = (cell.ljust(-width) if width < 0 else cell.rjust(width)
              for cell, width in zip(cells, widths))
    return " ".join(placed).rstrip()


def shown(values: Iterable[float | None], form: str) -> str:
    return "/".join("-" if value is None else format(value, form) for value in values)


def row_line(row: Run) -> str:
    runs = [row["drystone"], row["expandable"], row["native"], row["async"]]

    def all_of(field: str, form: str) -> str:
        return shown((figure(run, field) for run in runs), form)

    def marked(name: str, text: str) -> str:
        return text + "!" * (name in row["missed"])

    return line([
        row["trace"], row["costs"], row["device"],
        marked("refused", all_of("out_of_memory_events", "")),
        marked("waits", all_of("stream_waits", "")),
        marked("makespan", all_of("makespan_over_ideal", ".3f")),
        marked("time", shown([over_expandable(row, "driver_time_us")], ".3f")),
        marked("late", shown([over_expandable(row, "steady_driver_time_us")], ".3f")),
        marked("calls", all_of("steady_driver_calls", "")),
        all_of("reserved_per_requested", ".3f"),
        f"{row['drystone'].get('driver_time_us', 0) / 1e3:.1f} ms",
    ], (width for _, width in COLUMNS))


def summary(rows: list[Run]) -> str:
    """How many rows miss each goal, and the means that have goals of their own."""
    lines = []
    for goal in GOALS:
        misses, all_of = sum(map(goal.is_missed, rows)), sum(map(goal.concerns, rows))
        lines.append(f"{misses:>4} of {all_of:>4} rows miss: {goal.what} <= {goal.most:g}")
    for costs in sorted({row["costs"] for row in rows}):
        for device in ALL:
            mean = geometric_mean(over_expandable(row, "driver_time_us") for row in rows
                                  if (row["costs"], row["device"]) == (costs, device))
            if mean is not None:
                mark = f"! goal {MEAN_TIME_MOST}" * (device in PLENTY and mean > MEAN_TIME_MOST)
                lines.append(f"{costs:>10} {device:>6}: driver time over expandable's "
                             f"{mean:.3f}{mark}")
    return "\n".join(lines)


class Drystone:
    """The command, as it was just built."""

    def __init__(self, program: str, configuration: str) -> None:
        self.program, self.configuration = program, configuration

    def run(self, *arguments: object, refusals: bool = False) -> str:
        done = subprocess.run([self.program, *map(str, arguments)], cwd=ROOT, text=True,
                              stdout=subprocess.PIPE)
        # 1 says that something was refused, which is a figure here.
        if done.returncode not in ((0, 1) if refusals else (0,)):
            sys.exit(f"drystone {' '.join(map(str, arguments))} ended with {done.returncode}")
        return done.stdout

    def report(self, command: str, file: Path, *options: str) -> list[Run]:
        conf = ["--drystone-conf", self.configuration] if self.configuration else []
        return json.loads(self.run(command, "--json", *options, file, *conf,
                                   refusals=True))["traces"]

    def fits(self, file: Path) -> list[Run]:
        """The smallest device that serves each trace whole, and what running above it costs."""
        def pick(entries: list[Run], allocator: str, **beside: str) -> Run:
            wanted = {"allocator": allocator, **beside,
                      "configuration": self.configuration if allocator == OURS else ""}
            found = (one for one in entries if wanted.items() <= one.items())
            return next(found, {})

        fits = []
        for trace in self.report("fit", file):
            found = [pick(trace["fits"], name) for name in ALLOCATORS]
            brims = [f"{(fit.get('capacity_bytes') or 1) * BRIM:.0f}" for fit in found]
            swept = self.report("sweep", file, "--capacity", ",".join(["ample", *brims]))
            cells = next((one["cells"] for one in swept if one["trace"] == trace["trace"]), [])

            def over_ample(field: str) -> list[float | None]:
                pairs = ((pick(cells, name, device=brim).get(field),
                          pick(cells, name, device="ample").get(field) or None)
                         for name, brim in zip(ALLOCATORS, brims))
                return [ratio(*pair) for pair in pairs]

            fit = {"trace": trace["trace"],
                   "fits": [one.get("capacity_per_needed") for one in found],
                   "time": over_ample("driver_time_us"),
                   "makespan": over_ample("makespan_over_ideal")}
            fits.append(fit | {"missed": missed(fit, FIT_GOALS), "allocators": ALLOCATORS})
        return fits


def fit_line(fit: Run) -> str:
    cells = (shown(fit[key], ".4f") + "!" * (goal.name in fit["missed"])
             for key, goal in zip(("fits", "time", "makespan"), FIT_GOALS))
    return line([fit["trace"], *cells], (-31, 30, 36, 36))


def fit_summary(fits: list[Run]) -> str:
    lines = [f"{sum(goal.name in fit['missed'] for fit in fits):>4} of {len(fits):>4} traces miss: "
             f"{goal.what}" for goal in FIT_GOALS]
    for place, name in enumerate(ALLOCATORS):
        mean = geometric_mean(fit["fits"][place] for fit in fits)
        if mean is not None:
            mark = f"! goal {MEAN_FIT_MOST}" * (place == 0 and mean > MEAN_FIT_MOST)
            lines.append(f"{name:>16}: fits in {mean:.4f} of the peak request{mark}")
    return "\n".join(lines)


def name_of(file: Path) -> str:
    return file.name.partition(".")[0]


def all_traces(drystone: Drystone, folder: Path) -> list[Path]:
    """Those of the repository, then the generated ones, which are made anew."""
    files = sorted((ROOT / "traces").glob("*.csv.zst"))
    for listed in drystone.run("generate", "--list").splitlines()[1:]:
        if listed.strip():
            program = listed.split()[0]
            files.append(folder / f"{program}.csv.zst")
            drystone.run("generate", program, "--out", files[-1])
    return files


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cargo xtask figures", description=(
        "Replays every trace on devices from ample to barely enough, and holds what came of it "
        "against the goals."))
    add = parser.add_argument
    add("files", nargs="*", type=Path, help="traces; all without any")
    add("--only", action="append", metavar="TEXT", help="those whose name contains this")
    add("--capacity", default=",".join(ALL), help="devices, as `drystone sweep` takes them")
    add("--costs", default=COSTS, help="prices of driver calls, as `drystone sweep` takes them")
    add("--conf", default="", help="Drystone in this configuration (KEY:VALUE,...)")
    add("--misses", action="store_true", help="show the rows that miss a goal alone")
    add("--fit", action="store_true",
        help="also look for the smallest device that serves each trace, and replay just above it")
    add("--json", type=Path, metavar="OUT", help="where the whole result goes")
    add("--picture", action="store_true",
        help="draw memory held and time against the size of the device instead, for docs/")
    add("--program", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def picture(drystone: Drystone) -> None:
    """Memory held and time against the size of the device."""
    out = ROOT / "docs/evidence/device_size.svg"
    drystone.run("sweep", "--json", "--capacity", PICTURED_DEVICES, "--svg", out,
                 *(f"traces/{name}.csv.zst" for name in PICTURED), refusals=True)
    print(out)


def main() -> None:
    asked = arguments()
    drystone = Drystone(asked.program, asked.conf)
    if asked.picture:
        return picture(drystone)
    folder = ROOT / "target/figures"
    folder.mkdir(parents=True, exist_ok=True)
    files = [file.resolve() for file in asked.files] or all_traces(drystone, folder)
    files = [file for file in files
             if not asked.only or any(part in name_of(file) for part in asked.only)]
    if not files:
        sys.exit("no trace has such a name")
    rows, fits = [], []
    print(line((head for head, _ in COLUMNS), (width for _, width in COLUMNS)), flush=True)
    for number, file in enumerate(files, 1):
        print(f"[{number}/{len(files)}] {name_of(file)}", file=sys.stderr)
        devices = ",".join(filter(None, [asked.capacity, AT_THE_LIMIT.get(name_of(file))]))
        for trace in drystone.report("sweep", file, "--costs", asked.costs, "--capacity", devices):
            for row in rows_of(trace, asked.conf):
                rows.append(row)
                if row["missed"] or not asked.misses:
                    print(row_line(row), flush=True)
    print(f"\n{summary(rows)}\n")
    if asked.fit:
        print(line(["trace", "fits in, over peak", "driver time at brim/ample",
                    "makespan at brim/ample"], (-31, 30, 36, 36)))
        for file in files:
            for fit in drystone.fits(file):
                fits.append(fit)
                print(fit_line(fit), flush=True)
        print(f"\n{fit_summary(fits)}")
    out = asked.json or folder / "figures.json"
    out.write_text(json.dumps({"rows": rows, "fits": fits}, indent=1))
    print(out, file=sys.stderr)


if __name__ == "__main__":
    main()
