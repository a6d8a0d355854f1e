"""Real models train, serve and recover as with PyTorch's own allocator, in less memory.

`models.py` runs them with PyTorch's own allocator, with Drystone as a plug-in and compiled, and with
Drystone preloaded below `backend:cudaMallocAsync`.
"""

import importlib.util
import json
import os
import sys
import unittest
from pathlib import Path

from support import run

# What code does may hang on values, which must not hang on where a block lies: memory reads as 0.
DEVICE = "memory:8GiB,oracle:true,strict:true,kernel_us:20,event_latency_us:50"
# Threads take turns as it happens: what is at most allocated at one time differs.
BY_CHANCE = {"threads"}
# What other streams use is active until the allocator sees that they are done: when it looks, and
# how busy the machine is, decides what is still active in the end.
AWAITED = {"fsdp2_training", "prefetching"}
# Memory of graphs is the driver's where it is taken in stream order.
OTHERWISE_PRELOADED = {"graphs"}
GRANULE_BYTES = 2 << 20
MISSING = [name for name in ("torchvision", "transformers") if not importlib.util.find_spec(name)]


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.native, *cls.others = cls.told("as-started", "plug-in", "compiled")
        library = Path(os.environ["DRYSTONE_LIBRARY"]).with_name("libdrystone_preload.so")
        preloaded = cls.told("as-started", LD_PRELOAD=str(library),
                             PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        cls.others += preloaded

    @classmethod
    def told(cls, *allocators, **changes):
        # Programs so small that the memory created ahead of need would be most of what is held.
        done = run(sys.executable, "-B", "models.py", *allocators, SIMCUDA_CONF=DEVICE,
                   DRYSTONE_CONF="prefer:memory", TRANSFORMERS_OFFLINE="1", **changes)
        if done.returncode != 0:
            raise AssertionError(f"models.py ended with {done.returncode}:\n{done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def each(self):
        """Every run with Drystone: its programs' figures, and native's."""
        for told in self.others:
            for name, native in self.native["programs"].items():
                yield told, name, native, told["programs"][name]

    def test_every_program_ran_on_every_allocator_and_none_did_wrong(self):
        runs = (self.native, *self.others)
        self.assertEqual([run["backend"] for run in runs],
                         ["native", "pluggable", "drystone", "cudaMallocAsync"])
        self.assertEqual([run["violations"] for run in runs], [""] * 4)
        self.assertEqual({tuple(run["programs"]) for run in runs}, {tuple(runs[0]["programs"])})
        self.assertEqual(len(runs[0]["programs"]), 11)
        for name, native in self.native["programs"].items():
            self.assertGreater(native["allocation.all.freed"], 100, name)

    def test_figures_that_no_layout_changes_are_natives(self):
        for told, name, native, figures in self.each():
            if told["backend"] == "cudaMallocAsync" and name in OTHERWISE_PRELOADED:
                continue
            keys = [key for key in native if key.startswith(("allocation", "active", "requested"))]
            self.assertEqual(len(keys), 36)
            if name in BY_CHANCE:
                keys = [key for key in keys if not key.endswith("peak")]
            if name in AWAITED:
                keys = [key for key in keys
                        if not key.startswith(("active", "requested"))
                        or key.endswith("allocated")]
            with self.subTest(program=name, backend=told["backend"]):
                self.assertEqual(
                    {key: figures[key] for key in keys}, {key: native[key] for key in keys})

    def test_no_more_is_reserved_than_by_pytorchs_allocator_but_a_granule(self):
        for told, name, native, figures in self.each():
            with self.subTest(program=name, backend=told["backend"]):
                # The programs are small: their last granule may be one per cent of them.
                self.assertLessEqual(
                    figures["reserved_bytes.all.peak"],
                    native["reserved_bytes.all.peak"] + GRANULE_BYTES)

    def test_preloaded_only_graphs_reach_the_drivers_pools(self):
        own = {name: figures["drivers_own"]
               for name, figures in self.others[-1]["programs"].items() if figures["drivers_own"]}
        self.assertGreater(own.pop("graphs"), 0)
        self.assertEqual(own, {})


if __name__ == "__main__":
    sys.exit(unittest.main())
