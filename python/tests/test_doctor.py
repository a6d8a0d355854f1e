"""`python -m drystone doctor`: what is found, what is off, and that nothing breaks it."""

import json
import os
import sys
import tempfile
import unittest
from pathlib import Path

from support import run


def doctor(*arguments, **changes):
    return run(sys.executable, "-B", "-m", "drystone", "doctor", *arguments, **changes)


class Doctor(unittest.TestCase):
    def test_where_everything_is_there(self):
        done = doctor("--json", DRYSTONE_CONF="backend:vmm")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        found = json.loads(done.stdout)
        self.assertEqual((found["route"], found["virtual_memory"]), ("compiled", True))
        self.assertEqual(len(found["devices"]), 2)
        self.assertEqual(found["environment"]["DRYSTONE_CONF"], "backend:vmm")
        self.assertEqual([one for one in found["off"] if "reports" not in one["what"]], [])

    def test_where_the_environment_enables_it(self):
        start = "import drystone.__main__ as m; m.run()"
        done = run(sys.executable, "-c", start, "--conf", "limit:1GiB", sys.executable, "-m",
                   "drystone", "doctor", "--json")
        found = json.loads(done.stdout)
        self.assertEqual((found["route"], found["off"]), ("compiled", []))

    def test_what_is_left_to_a_host_whose_memory_the_gpu_has(self):
        for conf, told in (("profile:unified", True), ("", False)):
            done = doctor(SIMCUDA_CONF=f"memory:64GiB,{conf}")
            self.assertEqual("4.00 GiB of the host's memory are left to it" in done.stdout, told)

    def test_which_libraries_get_what_is_unused(self):
        found = json.loads(doctor("--json").stdout)
        self.assertIn("cudart", found["libraries"])
        self.assertRegex(found["libraries"], r"^[^;]*: get what is unused, by /[^;]*$")
        library = Path(os.environ["DRYSTONE_LIBRARY"]).with_name("libdrystone_preload.so")
        preloaded = doctor(LD_PRELOAD=str(library), DRYSTONE_PRELOAD="gives-back")
        self.assertEqual(preloaded.returncode, 0, preloaded.stderr)
        self.assertRegex(preloaded.stdout, r"libraries: .*cudart.*: get what is unused, by /")
        with tempfile.TemporaryDirectory(prefix="a b") as folder:
            alone = Path(folder, "libdrystone.so")
            alone.symlink_to(os.environ["DRYSTONE_LIBRARY"])
            done = doctor(DRYSTONE_LIBRARY=str(alone))
        self.assertIn("off:       unused memory for NCCL", done.stdout)

    def test_for_people_it_is_at_most_thirty_lines(self):
        done = doctor()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLessEqual(len(done.stdout.splitlines()), 30)
        for part in ("drystone:  0.1.0", "route:     compiled", "GPU 1:", "8.00 GiB"):
            self.assertIn(part, done.stdout)

    def test_what_is_off_and_why(self):
        done = doctor(CXX="/no/compiler", DRYSTONE_CACHE="/dev/null/nowhere",
                      DRYSTONE_CONF="backend:malloc",
                      PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:40")
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ("route:     plug-in", "memory:    plain allocations",
                     "off:       enabled as a plug-in",
                     "off:       remapping: memory comes in plain",
                     "max_split_size_mb is not needed"):
            self.assertIn(part, done.stdout)

    def test_where_nothing_works(self):
        done = doctor("--json", DRYSTONE_LIBRARY="/no/library")
        self.assertEqual(done.returncode, 1, done.stderr)
        found = json.loads(done.stdout)
        self.assertIsNone(found["route"])
        self.assertIn("cannot load libdrystone.so", found["off"][0]["why"])

    def test_a_script_of_that_name_is_a_script(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "doctor").write_text("print('mine')")
            done = doctor(folder=Path(folder))
        self.assertEqual(done.stdout, "mine\n", done.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
