"""What holds under the plug-in holds by the compiled route: the same tests, less refusals."""

import sys
import unittest

import drystone

drystone.enable(route="compiled")

# Enabled above, before these look.
from test_memory import Graphs, Memory, OutOfMemory, Streams, Training  # noqa: E402, F401

if __name__ == "__main__":
    sys.exit(unittest.main())
