"""PyTorch's statistics under Drystone are those under its own allocator: keys, meaning, units."""

import sys
import unittest

from support import answer

# Groups whose figures do not depend on how memory is laid out.
INDEPENDENT = ("allocation.", "active.", "requested_bytes.")


class SameProgram(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        program = (sys.executable, "-B", "workload.py")
        cls.native = answer(*program, DRYSTONE_ENABLE=None)
        command = (sys.executable, "-B", "-m", "drystone")
        cls.drystone = answer(*command, "--route", "plugin", "workload.py")
        cls.compiled = answer(*command, "workload.py")

    def test_every_key_of_the_native_statistics_is_there(self):
        for when in ("end", "reset", "after", "accelerator"):
            self.assertEqual(list(self.drystone[when]), list(self.native[when]), when)
            self.assertEqual(list(self.compiled[when]), list(self.native[when]), when)
        self.assertGreater(len(self.native["end"]), 100)

    def test_figures_that_no_layout_changes_are_equal(self):
        for when in ("end", "reset", "after"):
            native = self.native[when]
            keys = [key for key in native if key.startswith(INDEPENDENT)]
            self.assertEqual(len(keys), 36)
            for found in (self.drystone[when], self.compiled[when]):
                self.assertEqual(
                    {key: found[key] for key in keys}, {key: native[key] for key in keys}, when)

    def test_the_program_did_something(self):
        kinds = (self.native, self.drystone, self.compiled)
        self.assertEqual([kind["backend"] for kind in kinds], ["native", "pluggable", "drystone"])
        self.assertGreater(self.native["end"]["allocation.all.freed"], 100)
        self.assertGreater(self.native["end"]["requested_bytes.all.peak"], 40 << 20)

    def test_figures_that_depend_on_layout_are_consistent(self):
        kinds = (self.drystone, self.compiled)
        for when, figures in ((when, kind[when]) for when in ("end", "reset", "after")
                              for kind in kinds):
            for at in ("current", "peak"):
                requested, allocated, active, reserved = (
                    figures[f"{name}_bytes.all.{at}"]
                    for name in ("requested", "allocated", "active", "reserved"))
                self.assertLessEqual(requested, allocated)
                self.assertLessEqual(allocated, active)
                self.assertLessEqual(active, reserved)
            self.assertEqual(
                figures["reserved_bytes.all.allocated"] - figures["reserved_bytes.all.freed"]
                == figures["reserved_bytes.all.current"], when == "end")
            self.assertEqual(figures["num_ooms"], 0)

    def test_snapshots_have_the_same_keys(self):
        native = self.native["snapshot"]
        self.assertEqual(self.compiled["snapshot"], native)
        # Frames are part of the history, which is not there.
        for part in native.values():
            part[:] = [key for key in part if key != "frames"]
        self.assertEqual(self.drystone["snapshot"], native)

    def test_the_history_is_the_same(self):
        """All but addresses and segments: what, how large, on which stream, and who asked."""
        self.assertEqual(self.compiled["history"], self.native["history"])
        self.assertGreater(len(self.native["history"]), 50)


if __name__ == "__main__":
    sys.exit(unittest.main())
