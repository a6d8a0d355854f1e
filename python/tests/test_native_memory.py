"""What holds under the plug-in holds with native=True: the same tests, but for what was refused."""

import sys
import unittest

import drystone

drystone.enable(native=True)

# Enabled above, before these look.
from test_memory import Graphs, Memory, OutOfMemory, Streams, Training  # noqa: E402, F401

if __name__ == "__main__":
    sys.exit(unittest.main())
