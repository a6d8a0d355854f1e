"""A driver that fails, under PyTorch: see `faults.py`."""

import sys
import unittest

from support import answer

# Each kind has what it serves memory with: mapped, or as the driver's own allocations.
PROFILES = ("bare-metal", "virtual-gpu")


class Faults(unittest.TestCase):
    def test_whatever_function_fails_the_program_goes_on_and_nothing_is_lost(self):
        for route in ("compiled", "plugin"):
            found = answer(
                sys.executable, "-B", "faults.py", route, *PROFILES, SIMCUDA_CONF="")
            self.assertEqual(found["failures"], [], route)
            self.assertGreater(found["cases"], 200)


if __name__ == "__main__":
    unittest.main()
