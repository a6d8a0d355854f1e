"""What a run asks of a GPU, the most telling questions first: data, and nothing that runs.

A step is a command, a sentence that holds where it passes, the seconds that it takes on a device
as slow as the published figures, the most that it may take, and those of its figures that are
shown. Invariant: a run takes the steps in this order, so an hour that is cut short told the most.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent
PYTHON = [sys.executable, "-B"]
PRELOAD = f"LD_PRELOAD={HERE}/lib/libdrystone_preload.so"
#: How PyTorch is told so: since 2.9, and before.
ASYNC = [f"PYTORCH_{name}ALLOC_CONF=backend:cudaMallocAsync" for name in ("", "CUDA_")]
#: An engine on cudarc that knows nothing of Drystone.
ENGINE = ["DRYSTONE_TEST_ENGINE=1", f"{HERE}/bin/cudarc", "--exact", "--nocapture",
          "an_engine_on_cudarc_is_served_as_it_is"]


class Step(NamedTuple):
    name: str
    claim: str
    command: list[str]
    seconds: float
    limit: float
    shows: tuple[str, ...] = ()


def script(name: str, claim: str, seconds: float, limit: float, *shows: str) -> Step:
    return Step(name, claim, [*PYTHON, f"steps/{name}.py"], seconds, limit, shows)


def torch(file: str, route: str, claim: str, seconds: float, limit: float, *shows: str,
          named: str = "", conf: str = "") -> Step:
    """A script that takes a route to memory; a name, under settings of Drystone's."""
    command = [*PYTHON, f"steps/{file}.py", route, *filter(None, [named])]
    settings = [f"DRYSTONE_CONF={conf}"] if conf else []
    if route == "preload":
        settings = [PRELOAD, *ASYNC]
    before = ["/usr/bin/env", *settings] if settings else []
    name = f"{'compile' if file == 'compiled' else file}-{named or route}"
    return Step(name, claim, [*before, *command], seconds, limit, shows)


def train(route: str, claim: str, limit: float = 120, **how: str) -> Step:
    return torch("train", route, claim, 15, limit, "step ms", "reserved MiB, peak", **how)


def tight(route: str, claim: str, **how: str) -> Step:
    return torch("tight", route, claim, 45, 180, "steps refused", "step ms", **how)


SAME = "PyTorch trains to the native allocator's losses, bit for bit, "

#: By what they tell.
GROUPS: dict[str, list[Step]] = {
    "contents and addresses": [
        script("probe", "The driver opens and gives memory.", 2, 30, "device", "CUDA"),
        script("holds", "Memory that moves under streams, a graph and a thread that launches keeps "
               "its contents; mapping calls return while streams are held.", 5, 20,
               "moves", "not in time", "words wrong", "held us p50"),
        script("aliases", "Two addresses of one memory are one memory to kernels: in streams, "
               "graphs, dependent launches, bulk copies, and after moves.", 10, 60, "words wrong"),
        script("handover", "Memory that a process gives to another as it is keeps its contents "
               "once its maker has ended.", 5, 60, "contents wrong", "exported again",
               "import us p50"),
        torch("moves", "compiled", "PyTorch gets what lies unused between live tensors, by moves; "
              "the tensors keep their contents while a thread computes with them.", 15, 60,
              "moves", "outcome", "tensors wrong", "ms"),
        torch("streams", "compiled", "Streams that the program ends unseen break nothing "
              "(compiled route).", 15, 60, "reserved MiB at the end"),
        torch("streams", "plugin", "Streams that the program ends unseen break nothing "
              "(plug-in route).", 15, 60, "reserved MiB at the end"),
        Step("suite", "Drystone's own tests of contents, streams and graphs pass on this device.",
             ["bin/suite", "--test-threads=1", "gpu_"], 60, 300),
    ],
    "PyTorch, bit for bit": [
        train("native", "PyTorch's own allocator trains: what the others are compared with."),
        train("compiled", SAME + "on the compiled route.", 180),
        train("plugin", SAME + "on the plug-in route."),
        train("preload", SAME + "with the library preloaded."),
        train("compiled", SAME + "with `prefer:memory`.", 180, named="memory",
              conf="prefer:memory"),
        train("compiled", SAME + "with `remap:off`.", 180, named="still", conf="remap:off"),
        train("expandable", SAME + "with its own expandable segments."),
        tight("native", "PyTorch's own allocator trains near the end of memory, or refuses."),
        tight("compiled", SAME + "near the end of memory."),
        torch("compiled", "native", "torch.compile runs with PyTorch's own allocator.", 25, 90),
        torch("compiled", "compiled", "torch.compile runs on the compiled route.", 25, 90),
        torch("compiled", "plugin", "torch.compile runs on the plug-in route.", 25, 90),
    ],
    "prices": [
        script("growth", "The driver's calls have prices, up to a full device.", 60, 300,
               "create p50", "map p50", "access p50", "unmap p50", "release p50"),
        script("ranges", "A call over many mappings has a price.", 5, 60, "access p50",
               "unmap p50"),
        Step("measure", "Drystone's own calls have prices.",
             ["bin/measure", "--json", "--repeats", "20", "--mappings", "20000"], 30, 240),
        script("latency", "Kernels have prices beside mapping calls.", 10, 60, "launch p50"),
        script("bandwidth", "It is known how fast kernels fill and read memory of small handles "
               "and plain memory.", 15, 90, "filled", "read at random"),
        Step("inference", "An inference loop has a price.", ["bin/inference"], 10, 60),
    ],
    "the rest": [
        script("captures", "It is known which calls a capture allows.", 60, 90),
        tight("expandable", SAME + "near the end, with its own expandable segments."),
        tight("compiled", SAME + "near the end with `prefer:memory`.", named="memory",
              conf="prefer:memory"),
        torch("moves", "native", "PyTorch's own allocator in the place of moves.", 15, 30,
              "outcome"),
        script("share", "Tensors go to other processes, on and off Drystone.", 60, 240),
        Step("example", "The C example of the documents runs.", ["bin/example"], 2, 30),
        Step("engine", "An engine on cudarc runs by itself.", ["/usr/bin/env", *ENGINE], 5, 60),
        Step("engine-preload", "The same engine runs with the library preloaded.",
             ["/usr/bin/env", PRELOAD, *ENGINE], 5, 60),
        Step("device", "The driver's crate does on this device what it does on the simulated one.",
             ["bin/device", "--test-threads=1"], 60, 240),
        script("limits", "The device's limits are known.", 60, 180, "limit", "reached"),
    ],
}
STEPS = [step for steps in GROUPS.values() for step in steps]
