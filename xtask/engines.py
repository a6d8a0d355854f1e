"""Engines from crates.io on the simulated device: what `cargo xtask engines` runs once it has built
them.

    python engines.py BUILDS PRELOADED ENGINE ...

Each program of `engines/` runs as it is, with Drystone installed by a call, and with it preloaded.
Invariant: a table tells what each held, what that cost and what the oracle saw; the command fails
if a program used memory out of order, was not served, or held more than it may.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Program(NamedTuple):
    """A program of an engine, `ENGINE-plain` and `ENGINE-installed`; what it may hold over what it
    asks for, with `prefer:memory`; and the folder that it is and runs in."""
    name: str
    engine: str
    arguments: list
    most_held: float
    folder: str = "debug"


#: With batches whose shapes vary. The last handles, of 8 MiB, are in use in part.
BERT = Program("candle BERT, 40 batches", "candle", ["bert", "40"], 1.02)
PROGRAMS = [
    Program("candle Llama, 12 requests", "candle", ["llama", "12"], 1.02),
    BERT,
    # Its weights are small, of odd sizes, and stay: each leaves the rest of a granule.
    Program("candle quantised Llama, 6 requests", "candle", ["quantized", "6"], 1.07),
    # Its own pools take of the device what they want, in pages of their own.
    Program("burn encoder, 40 batches", "burn", ["encoder", "40"], 1.02),
    Program("the same, cubecl's pools off", "burn", ["encoder", "40"], 1.08, "patched"),
    # It is small, so that the last handles weigh more.
    Program("kornia tracker, 60 frames", "kornia", ["frames", "60"], 1.16),
    # Caches of many sequences are small, and outlive what lies between them.
    Program("mistral.rs Llama, 24 requests", "mistral", ["llama", "24"], 1.05),
]
#: How a program comes to its memory, and `DRYSTONE_CONF`; as it is comes first.
WAYS = {
    "as it is": ("plain", ""),
    "installed": ("installed", ""),
    "installed, `prefer:memory`": ("installed", "prefer:memory"),
    "preloaded": ("preloaded", ""),
    "preloaded, `prefer:memory`": ("preloaded", "prefer:memory"),
}
#: The oracle's kernels run up to 50 µs, the engine's own for 20 µs.
DEVICE = "oracle:true,check_kernel_us:50,kernel_us:20"
MEMORY_CALLS = """cuMemAllocAsync cuMemFreeAsync cuMemAlloc_v2 cuMemFree_v2 cuMemAddressReserve
    cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess""".split()
#: Threads of burn take turns as they like: what two runs ask for may differ by this.
SLACK_BYTES = 64 << 20
#: A program completes on this much each way; burn takes more than it uses.
AMPLE_MIB = 16 << 10
#: The device that `BERT` may need with `prefer:memory`, and how near the search for it comes.
BERT_MIB, STEP_MIB = 1908, 8


class Figures(NamedTuple):
    """What a program asked for at most at one time, in stream order; what it held of the device at
    most, also what libraries and other calls took; the calls of the driver, and those that take and
    give memory or map it; their time by the prices of the simulated device; the requests that
    reached the driver's own pool; and what the oracle saw."""
    asked: int
    held: int
    calls: int
    memory_calls: int
    time_us: float
    from_pool: int
    violations: int

    def row(self):
        return (f"{self.asked >> 20} | {self.held >> 20} | {self.held / self.asked:.3f} | "
                f"{self.calls} | {self.memory_calls} | {self.time_us / 1e3:.0f} | "
                f"{self.from_pool} | {self.violations}")


HEAD = ("program | way | asked, MiB | held, MiB | held / asked | driver calls | "
        "of them for memory | driver time, ms | from the driver's pool | violations")


class Bench(NamedTuple):
    """Where programs are built, what is preloaded."""
    builds: Path
    preload: Path

    def run(self, program, way, memory_mib):
        """What a program printed on a device of this much memory, which leaves its statistics; and
        whether it completed."""
        stats = self.builds / "stats.json"
        stats.unlink(missing_ok=True)
        kind, options = WAYS[way]
        folder = self.builds / program.folder
        environment = {
            **os.environ, "DRYSTONE_CONF": options,
            "SIMCUDA_CONF": f"memory:{memory_mib}MiB,{DEVICE},stats:{stats}"}
        if kind == "preloaded":
            environment["LD_PRELOAD"] = str(self.preload)
        name = f"{program.engine}-{'installed' if kind == 'installed' else 'plain'}"
        done = subprocess.run([folder / name, *program.arguments], cwd=folder, env=environment,
                              capture_output=True, text=True, errors="replace")
        # A thread of an engine may fail where the program does not notice.
        return done, done.returncode == 0 and "panicked" not in done.stderr

    def figures(self, program, way):
        """Those of a program that has to complete."""
        ample_mib = AMPLE_MIB * (2 if program.engine == "burn" else 1)
        done, is_complete = self.run(program, way, ample_mib)
        if not is_complete:
            sys.exit(f"{program.name}, {way}: ended with {done.returncode}\n{done.stderr}")
        asked = [line for line in done.stdout.splitlines() if line.startswith("asked ")]
        stats = json.loads((self.builds / "stats.json").read_text())
        device = stats["devices"][0]
        calls = {name: told["calls"] for name, told in stats["functions"].items()}
        return Figures(int(asked[-1].split()[1]), device["peak_physical_bytes"], device["calls"],
                       sum(calls.get(name, 0) for name in MEMORY_CALLS), device["driver_time_us"],
                       calls.get("cuMemAllocAsync", 0), device["violations"])

    def fit_mib(self, program, way):
        """The smallest device that completes a program, in MiB."""
        refused, completed = 0, AMPLE_MIB
        if not self.run(program, way, completed)[1]:
            sys.exit(f"{program.name} does not complete on {completed} MiB")
        while completed - refused > STEP_MIB:
            middle = (refused + completed) // 2
            if self.run(program, way, middle)[1]:
                completed = middle
            else:
                refused = middle
        return completed


def complaints(program, way, now, plain):
    """What should not be, of a program that ran one way."""
    kind, options = WAYS[way]
    for is_wrong, what in [
        (now.violations > 0, "memory was used out of order"),
        (abs(now.asked - plain.asked) > SLACK_BYTES, "it asked for other memory"),
        (kind != "plain" and now.from_pool > 0, "memory came from the driver's pool"),
        (now.held > plain.held + SLACK_BYTES, "it holds more than as it is"),
        (options and now.held / now.asked > program.most_held, "it holds more than it may"),
    ]:
        if is_wrong:
            yield f"{program.name}, {way}: {what}"


def main(builds, preload, *engines):
    bench = Bench(Path(builds), Path(preload))
    wrong = []
    print(f"| {HEAD} |\n|{' --- |' * 10}", flush=True)
    for program in [program for program in PROGRAMS if program.engine in engines]:
        plain = None
        for way in WAYS:
            now = bench.figures(program, way)
            plain = plain or now
            print(f"| {program.name} | {way} | {now.row()} |", flush=True)
            wrong += complaints(program, way, now, plain)
    if BERT.engine in engines:
        print(f"\n| {BERT.name} | smallest device, MiB |\n| --- | --- |", flush=True)
        for way, (_, options) in WAYS.items():
            mib = bench.fit_mib(BERT, way)
            print(f"| {way} | {mib} |", flush=True)
            if options and mib > BERT_MIB:
                wrong.append(f"{BERT.name}, {way}: needs {mib} MiB")
    if wrong:
        sys.exit("\n".join(["not as it should be:", *wrong]))


if __name__ == "__main__":
    main(*sys.argv[1:])
