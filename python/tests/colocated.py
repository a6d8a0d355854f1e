"""Processes that share devices: what each gets, under one allocator.

    colocated.py [--ranks] native|expandable|drystone|memory ...

Two on one device: a trainer is a persistent part and activations of varying lengths; an engine has
weights, tries its longest prompt, gives that back and then takes nine tenths of what is free. With
`--ranks` eight trainers on eight devices, of which one is killed and comes again. Kernels compute
nothing: what counts is who holds how much. `memory` is Drystone with `prefer="memory"`.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time

from sharing import MIB, become


RANKS, KILLED = 8, 3


def say(**figures):
    print(json.dumps(figures), flush=True)


def empty(mebibytes):
    import torch
    return torch.empty(int(mebibytes * MIB), dtype=torch.uint8, device="cuda")


def engine(waits):
    """Says what is free once its weights are there, and takes of it what it saw."""
    import torch
    weights = [empty(64) for _ in range(16)]
    for prompt in (16, 64, 32):
        activations = [empty(prompt) for _ in range(4)]
        del activations
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    say(free=free // MIB)
    if waits:
        sys.stdin.readline()
    try:
        cache = empty(0.9 * free // MIB)
        say(cache=cache.numel() // MIB)
    except torch.OutOfMemoryError:
        say(cache=0)
    sys.stdin.readline()
    del weights


def step(rng):
    """Forwards, then backwards."""
    length, kept = rng.uniform(0.4, 1.0), []
    for _ in range(24):
        kept.append(empty(96 * length))
        work = empty(length * rng.choice([30, 50, 140]))
        del work
    while kept:
        gradient = empty(96 * length)
        kept.pop()
        del gradient


def trainer():
    """Twenty steps alone, and twenty beside whoever came meanwhile."""
    import simulated
    import torch
    rng = random.Random(1)
    persistent = [empty(48) for _ in range(32)]
    for _ in range(20):
        step(rng)
    say(peak=torch.cuda.max_memory_allocated() // MIB, held=torch.cuda.memory_reserved() // MIB,
        calls=simulated.calls())
    sys.stdin.readline()
    refused = 0
    for _ in range(20):
        try:
            step(rng)
        except torch.OutOfMemoryError:
            refused += 1
    say(refused=refused)
    sys.stdin.readline()
    del persistent


def rank(number):
    """Twenty steps on its own device, once all are there; twenty more while one of them goes."""
    import simulated
    import torch
    torch.cuda.set_device(number)
    say(free=torch.cuda.mem_get_info()[0] // MIB)
    sys.stdin.readline()
    rng, start, begun = random.Random(number), time.process_time(), simulated.now_ns(number)
    persistent = [empty(48) for _ in range(32)]
    for _ in range(20):
        step(rng)
    say(peak=torch.cuda.max_memory_allocated() // MIB, held=torch.cuda.memory_reserved() // MIB,
        calls=simulated.calls(number), driver_ms=(simulated.now_ns(number) - begun) / 1e6,
        cpu_ms=(time.process_time() - start) * 1e3)
    sys.stdin.readline()
    for _ in range(20):
        step(rng)
    looks = [torch.cuda.mem_get_info(one) for one in range(RANKS)]
    elsewhere = [(total - free) // MIB for free, total in looks]
    say(used=elsewhere, violations=simulated.violation_count(number))
    sys.stdin.readline()
    del persistent


class Process:
    """Another one of this file, by its role."""

    def __init__(self, *role):
        self.pipe = subprocess.Popen(
            [sys.executable, "-B", __file__, *role], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)

    def says(self):
        return json.loads(self.pipe.stdout.readline())

    def goes_on(self):
        self.pipe.stdin.write("\n")
        self.pipe.stdin.flush()


def compare(kind, folder):
    roles = {"at once": ["--engine", "waits"], "beside a trainer": ["--engine"]}
    figures = {}
    for name, role in roles.items():
        conf = os.environ.get("COLOCATED_CONF", "memory:8GiB")
        os.environ["SIMCUDA_CONF"] = f"{conf},shared:{folder}/{kind}-{len(figures)}"
        first = Process(kind, *(role if name == "at once" else ["--trainer"]))
        trained = first.says() if name != "at once" else {}
        second = Process(kind, *role)
        if name == "at once":
            free = [first.says()["free"], second.says()["free"]]
            first.goes_on(), second.goes_on()
            figures[name] = {"free": free, "caches": [first.says()["cache"], second.says()["cache"]]}
        else:
            free, cache = second.says()["free"], second.says()["cache"]
            first.goes_on()
            figures[name] = {**trained, "free": free, "cache": cache, **first.says()}
        for process in (first, second):
            process.goes_on()
            process.pipe.wait()
    return figures


def compare_ranks(kind, folder):
    conf = os.environ.get("COLOCATED_CONF", "memory:8GiB,calls_take_time:true")
    os.environ["SIMCUDA_CONF"] = f"{conf},devices:{RANKS},shared:{folder}/ranks-{kind}"
    ranks = [Process(kind, "--rank", str(number)) for number in range(RANKS)]
    free = [one.says()["free"] for one in ranks]
    for one in ranks:
        one.goes_on()
    told = [one.says() for one in ranks]
    ranks[KILLED].pipe.kill()
    ranks[KILLED].pipe.wait()
    ranks[KILLED] = Process(kind, "--rank", str(KILLED))
    free_again = ranks[KILLED].says()["free"]
    ranks[KILLED].goes_on()
    told_again = ranks[KILLED].says()
    for one in ranks:
        one.goes_on()
    ended = [one.says() for one in ranks]
    for one in ranks:
        one.goes_on()
        one.pipe.wait()
    figures = {key: [one[key] for one in told] for key in told[0]}
    return {**figures, "free": [min(free), max(free)], "free where one was killed": free_again,
            "its calls again": told_again["calls"],
            "violations": sum(one["violations"] for one in ended), "used": ended[0]["used"]}


if __name__ == "__main__":
    if "--rank" in sys.argv:
        become("remapping" if sys.argv[1] == "memory" else sys.argv[1])
        rank(int(sys.argv[-1]))
    elif "--engine" in sys.argv or "--trainer" in sys.argv:
        become("remapping" if sys.argv[1] == "memory" else sys.argv[1])
        engine("waits" in sys.argv) if "--engine" in sys.argv else trainer()
    else:
        kinds = [one for one in sys.argv[1:] if one != "--ranks"]
        measured = compare if kinds == sys.argv[1:] else compare_ranks
        with tempfile.TemporaryDirectory() as folder:
            for kind in kinds:
                print(kind, json.dumps(measured(kind, folder)), flush=True)
