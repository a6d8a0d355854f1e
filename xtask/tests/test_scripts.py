"""Tests of functions of `xtask/figures.py` and of the GPU's steps. What the script `xtask/gpu/run`
does as a whole is tested in `test_gpu.py`."""

import ast
import graphlib
import math
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "xtask"), str(ROOT / "xtask/gpu/steps")]
import figures  # noqa: E402
import kernels  # noqa: E402
import latency  # noqa: E402
import limits  # noqa: E402
import plan  # noqa: E402
import verdict  # noqa: E402


def rows(device, refused, time, calls):
    """What is made of cells as `drystone sweep --json` prints them."""
    def cell(allocator, refused, time, calls):
        return {"allocator": allocator, "configuration": "", "device": device,
                "out_of_memory_events": refused, "driver_time_us": time,
                "steady_driver_time_us": time / 4, "steady_driver_calls": calls}
    cells = [cell(figures.OURS, refused, time, calls), cell(figures.EXPANDABLE, 0, 1000.0, 8)]
    return figures.rows_of({"trace": "t", "cells": cells}, "")


def fit(ours, expandable, time):
    found = {"trace": "t", "fits": [ours, expandable, None, None], "time": [time, 9.0, None, None],
             "makespan": [time / 2, 2.0, None, None]}
    return found | {"missed": figures.missed(found, figures.FIT_GOALS)}


class Figures(unittest.TestCase):
    def test_goals_depend_on_the_device_and_means_have_their_own(self):
        for device, missed in {"ample": "refused time calls", "1.1x": "refused time",
                               "1.02x": "refused late", "80GiB": ""}.items():
            self.assertEqual(rows(device, 1, 1500.0, 9)[0]["missed"], missed.split())
        self.assertEqual(rows("ample", 0, 1000.0, 8)[0]["missed"], [])
        told = figures.summary(rows("1.34x", 0, 1500.0, 0))
        self.assertIn("   1 of    1 rows miss: driver time of the whole", told)
        self.assertIn("   0 of    0 rows miss: waits", told)
        self.assertIn("1.34x: driver time over expandable's 1.500! goal 0.5", told)
        self.assertIsNone(figures.geometric_mean([0, math.inf, None]))
        self.assertEqual(figures.geometric_mean([2, 8, 0]), 4.0)

    def test_a_fit_is_small_and_no_larger_than_that_of_expandable_segments(self):
        for values, missed in {
            (1.01, 1.01, 2): [],
            (1.01, 1.009, 2): ["fit"],
            (None, 1.3, 1): ["fit"],
            (1.02, None, 2.5): ["fit", "time at the brim", "makespan at the brim"],
        }.items():
            self.assertEqual(fit(*values)["missed"], missed, values)
        told = figures.fit_line(fit(1.02, 1.5, 1.25))
        told += figures.fit_summary([fit(1.01, 1.5, 1.0), fit(1.01, None, 3.0)])
        for part in (" 1.0200/1.5000/-/-! ", " 1.2500/9.0000/-/- ",
                     "   0 of    2 traces miss: fits", "   1 of    2 traces miss: driver time",
                     "drystone-vmm: fits in 1.0100 of the peak request! goal"):
            self.assertIn(part, told)


def step(name, status="passed", why="", **data):
    return {"name": name, "status": status, "why": why, "seconds": 1, "data": data}


class Verdict(unittest.TestCase):
    def test_losses_are_compared_as_far_as_both_ways_went(self):
        against = verdict.against
        self.assertEqual(against(["1", "2", "refused", "4"], ["1", "2", "3", "5"]), "same, 2 steps")
        self.assertEqual(against(["1", "2", "3"], ["1", "2", "3"]), "same")
        self.assertEqual(against(["1", "2", "3"], ["1", "7", "refused"]), "differ")
        self.assertEqual(against(None, ["1"]), "unknown")

    def test_the_last_lines_tell_what_held_what_did_not_and_what_was_not_reached(self):
        steps = [
            step("holds", **{"moves": 200, "words wrong": 0, "computed": True}),
            step("aliases", "failed", "ended with 1", **{"words wrong": 7}),
            step("probe", "skipped", "no driver"),
            step("growth", "skipped", verdict.NO_TIME),
            step("train-native", route="native", losses=["1", "2"]),
            step("train-plugin", route="plugin", losses=["1", "2"]),
            step("train-compiled", route="compiled", losses=["1", "3"]),
        ]
        results = {"steps": steps, "compared": verdict.compared(steps)}
        lines = verdict.verdict(results, plan.STEPS, 9)
        # Each step is in one list, with the figures that decided.
        found = {}
        for line in "\n".join(lines).replace("\n      ", " ").splitlines():
            if line.startswith("  "):
                name, text = line.strip().split(" (", 1)
                self.assertNotIn(name, found)
                found[name] = (title, text)
            else:
                title = line.split(":")[0]
        for name, title, part in [
            ("holds", "HELD", "moves 200; words wrong 0"),
            ("train-native", "HELD", ""),
            ("train-plugin", "HELD", ""),
            ("aliases", "DID NOT HOLD", "words wrong 7"),
            ("train-compiled", "DID NOT HOLD", "the losses differ"),
            ("probe", "NOT ASKED", "no driver"),
            ("growth", "NOT REACHED", "cut off after 1 s"),
            ("limits", "NOT REACHED", ""),
        ]:
            self.assertEqual(found[name][0], title, name)
            self.assertIn(part, found[name][1])
        self.assertIn("`./run --minutes 9` goes on with them", "\n".join(lines))


class Kernels(unittest.TestCase):
    def test_kernels_of_the_steps_are_what_nvidias_assembler_takes(self):
        """The assembler comes with Triton, where that is installed for other tests."""
        within = "target/torch/venv/lib/*/site-packages/triton/backends/nvidia/bin/ptxas"
        ptxas = next(ROOT.glob(within), None)
        if ptxas is None:
            self.skipTest("target/torch has no Triton, and that no ptxas")
        texts = [kernels.HEAD + kernels.FILL + kernels.VERIFY, kernels.HEAD + kernels.GATHER,
                 kernels.EARLY, kernels.BULK, latency.KERNEL, limits.SPIN,
                 (ROOT / "crates/lab/testkit/src/gpu/kernels.ptx").read_bytes()]
        for text in texts:
            subprocess.run([ptxas, "-arch=sm_90", "-o", "/dev/null", "/dev/stdin"],
                           input=text, check=True)


class Imports(unittest.TestCase):
    def test_modules_of_the_package_import_each_other_one_way(self):
        files = {file.stem: file for file in (ROOT / "python/drystone").glob("*.py")}
        self.assertGreater(len(files), 5)
        uses = {module: set() for module in files}
        for module, file in files.items():
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ImportFrom) and node.level == 1:
                    names = [node.module] if node.module else [one.name for one in node.names]
                    # What is no module comes from the package's own file.
                    uses[module] |= {name if name in files else "__init__" for name in names}
            uses[module].discard(module)
        graphlib.TopologicalSorter(uses).prepare()
