"""Two processes on one device: what one holds unused serves the other, by every route."""

import json
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import drystone
from drystone import _available, _library
from support import GIB, MIB, answer, run

# The first frees three quarters of the device, and starts the second, which asks for half.
PROGRAM = """
    import json, subprocess, sys, time, torch
    free, total = torch.cuda.mem_get_info()
    if len(sys.argv) == 1:
        block = torch.empty(total * 3 // 4, dtype=torch.uint8, device="cuda")
        del block
        second = subprocess.run([sys.executable, __file__, "second"], capture_output=True, text=True)
        print(second.stderr, file=sys.stderr)
        assert second.returncode == 0, second.stderr
        print(json.dumps([json.loads(second.stdout), torch.cuda.memory_reserved()]))
    else:
        try:
            block = torch.empty(total // 2, dtype=torch.uint8, device="cuda")
            print(json.dumps("served"))
        except torch.cuda.OutOfMemoryError as error:
            print(json.dumps(str(error)))
"""

# The first frees three quarters of the device; a library in the second asks the driver for half.
LIBRARY = """
    import ctypes, json, subprocess, sys, torch
    free, total = torch.cuda.mem_get_info()
    if len(sys.argv) == 1:
        block = torch.empty(total * 3 // 4, dtype=torch.uint8, device="cuda")
        del block
        second = subprocess.run([sys.executable, __file__, "second"], capture_output=True, text=True)
        assert second.returncode == 0, second.stderr
        print(second.stdout.strip())
    else:
        torch.empty(1, device="cuda")
        address, driver = ctypes.c_void_p(), ctypes.CDLL("libcuda.so.1")
        answers = [driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
                   for size in (total // 2, total)]
        print(json.dumps(answers))
"""

TOLD = """
    import json, sys, torch, drystone
    kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    again = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    del again
    if len(sys.argv) == 1:
        import subprocess
        second = subprocess.run([sys.executable, __file__, "second"], capture_output=True, text=True)
        assert second.returncode == 0, second.stderr
        print(json.dumps([json.loads(second.stdout), drystone.available(), drystone.report(), drystone.metrics()]))
    else:
        most = drystone.available()
        block = torch.empty(most, dtype=torch.uint8, device="cuda")
        try:
            torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError as error:
            print(json.dumps([most, str(error), drystone.report()]))
"""

# Two engines that start together: each looks, tries a step out, and sizes its cache by what is free
# and what PyTorch holds, as vLLM does (SGLang empties its cache first, and looks).
ENGINES = """
    import json, subprocess, sys, time, torch
    share = 0.42
    second = None
    if len(sys.argv) == 1:
        second = subprocess.Popen([sys.executable, __file__, "second"], stdout=subprocess.PIPE, text=True)
    free, total = torch.cuda.mem_get_info()
    if free < share * total:
        sys.exit(f"{free} of {total} free")
    weights = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    others_before = total - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
    for _ in range(20):
        step = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        time.sleep(0.02)
        del step
    others = total - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
    peak = torch.cuda.max_memory_allocated()
    size = int(share * total) - peak - max(others - others_before, 0)
    cache = torch.empty(size, dtype=torch.uint8, device="cuda")
    step = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    print(json.dumps(size))
    sys.stdout.flush()
    if second:
        del step
        print(second.communicate()[0].strip())
        sys.exit(second.returncode)
"""

# The first holds 4 GiB unused; the second says what is free.
FREE = """
    import json, subprocess, sys, torch
    if len(sys.argv) == 1:
        torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
        sys.exit(subprocess.run([sys.executable, __file__, "second"]).returncode)
    torch.empty(1, device="cuda")
    assert torch.accelerator.get_memory_info() == torch.cuda.mem_get_info()
    print(json.dumps(torch.cuda.mem_get_info()[0]))
"""

IDLE = """
    import json, time, torch
    block = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    del block
    before = torch.cuda.memory_reserved()
    time.sleep(3)
    print(json.dumps([before, torch.cuda.memory_reserved()]))
"""


class Neighbours(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.device = f"memory:8GiB,shared:{self.folder / 'device'}"

    def answer(self, program, *flags, **changes):
        path = self.folder / "program.py"
        path.write_text(textwrap.dedent(program))
        return answer(sys.executable, "-B", "-m", "drystone", *flags, str(path),
                      SIMCUDA_CONF=self.device, DRYSTONE_BOARD=str(self.folder), **changes)

    def test_libraries_of_another_process_get_it_too(self):
        self.assertEqual(self.answer(LIBRARY), [0, 2])

    def test_what_one_process_holds_unused_serves_another_on_either_route(self):
        for route in ("compiled", "plugin"):
            with self.subTest(route):
                second, reserved = self.answer(PROGRAM, "--route", route)
                self.assertEqual(second, "served")
                self.assertEqual(reserved if route == "compiled" else 4 * GIB, 4 * GIB)
                self.assertEqual(list(self.folder.glob("drystone-*")), [], "the board is gone")

    def test_off_is_refused_as_before(self):
        second, _ = self.answer(PROGRAM, DRYSTONE_CONF="neighbours:off")
        self.assertIn("out of memory", second)

    def test_what_can_be_had_is_one_number_and_who_has_the_rest_is_named(self):
        (most, refusal, report), available, own, metrics = self.answer(TOLD)
        # Without what both have in use, and contexts take.
        self.assertGreater(most, 8 * GIB - 2 * GIB - 3 * GIB)
        self.assertLessEqual(most, 6 * GIB)
        self.assertRegex(refusal, r"Process \d+ \(python\S*\) holds 1\.\d\d GiB, \d+ bytes of it unused")
        self.assertRegex(report, r"taken from process \d+ \(python")
        self.assertRegex(own, r"given to process \d+ \(python")
        self.assertGreaterEqual(available, most)
        given = [line for line in metrics.splitlines() if line.startswith("drystone_given_bytes_total")]
        self.assertGreaterEqual(int(given[0].split()[1]), 2 * GIB - 4 * MIB)

    def test_two_engines_that_start_together_size_their_caches_as_if_alone(self):
        path = self.folder / "program.py"
        path.write_text(textwrap.dedent(ENGINES))
        for route in ("compiled", "plugin"):
            with self.subTest(route):
                done = run(sys.executable, "-B", "-m", "drystone", "--route", route, str(path),
                           SIMCUDA_CONF=self.device, DRYSTONE_BOARD=str(self.folder),
                           DRYSTONE_CONF="mem_get_info:neighbours")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                # What one has in use while the other looks is the other's loss, with any allocator.
                least = int(0.42 * 8 * GIB) - 2 * (GIB + 256 * MIB) - 64 * MIB
                self.assertGreater(min(int(line) for line in done.stdout.split()), least)

    def test_mem_get_info_counts_what_neighbours_could_give_by_an_option(self):
        free = {}
        for counted in ("device", "neighbours"):
            free[counted] = self.answer(FREE, DRYSTONE_CONF=f"mem_get_info:{counted}")
        self.assertAlmostEqual(free["neighbours"] - free["device"], 4 * GIB, delta=64 * MIB)

    def test_idle_memory_goes_back(self):
        before, after = self.answer(IDLE, DRYSTONE_CONF="idle:1")
        self.assertEqual((before, after), (3 * GIB, GIB))


class Doctor(unittest.TestCase):
    def test_who_is_on_the_board_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            device = f"memory:8GiB,shared:{folder}/device"
            # It enables Drystone itself.
            code = """
import os, subprocess, sys, torch
kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
del os.environ["DRYSTONE_ENABLE"]
sys.exit(subprocess.run([sys.executable, "-m", "drystone", "doctor", "--json"]).returncode)
"""
            done = run(sys.executable, "-B", "-m", "drystone", "-c", code,
                       SIMCUDA_CONF=device, DRYSTONE_BOARD=folder)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            facts = json.loads(done.stdout)
            self.assertRegex(facts["devices"][0]["neighbours"][0], r"process \d+ \(python\S*\) holds 1")


class Words(unittest.TestCase):
    def test_what_a_name_may_hold_is_told_as_it_is(self):
        stats = {"neighbours": {"others": [
            {"process": 7, "name": "a?b", "held_bytes": GIB, "unused_bytes": MIB}], "last": [
            {"process": 7, "name": "a?b", "is_taken": True, "bytes": MIB, "microseconds": 1500}],
            "idle_bytes": MIB}}
        self.assertEqual(list(_available.others(stats)), [
            "process 7 (a?b) holds 1.00 GiB, 1.00 MiB of it unused"])
        self.assertEqual(list(_available.exchanges(stats)), [
            "1.00 MiB taken from process 7 (a?b) in 1.5 ms", "1.00 MiB went back unused for long"])

    def test_a_device_that_is_not_there_is_an_error(self):
        drystone.enable(route="plugin")
        with self.assertRaises(drystone.DrystoneError):
            drystone.available(device=99)
        self.assertIn("neighbours", _library.stats(0))


if __name__ == "__main__":
    unittest.main()
